"""``neoteny help``: every command in a line, or the help of one."""

from __future__ import annotations

import importlib

from neoteny.arguments import table
from neoteny.commands import COMMANDS
from neoteny.errors import UsageError
from neoteny.wording import did_you_mean


def main(argv: list[str]) -> int:
    """Run ``neoteny help``."""
    if argv and argv[0] != "help":
        if argv[0] not in COMMANDS:
            raise UsageError(unknown(argv[0]))
        module = importlib.import_module(f"neoteny.commands.{argv[0]}")
        status: int = module.main([*argv[1:], "--help"])
        return status
    print("usage: neoteny COMMAND [--help] ...\n\nKeeps reinforcement-learning agents able to learn.\n")
    print(table(COMMANDS))
    return 0


def unknown(name: str) -> str:
    """Say that there is no such command, and what there is."""
    return f"there is no command {name!r}" + (
        did_you_mean(name, COMMANDS) or f"; the commands are: {', '.join(COMMANDS)}"
    )
