"""The command line: one word chooses a command, whose module is loaded only then."""

from __future__ import annotations

import sys
from importlib import import_module

from neoteny import __version__

COMMANDS = {
    "demo": ("neoteny.demo", "draw from a wrapped buffer under every schedule, and make a picture of it"),
    "bench replay": ("neoteny.bench.replay", "what a draw and a sample cost, beside uniform replay"),
}


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["--version"], ["-V"]):
        print(f"neoteny {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in COMMANDS:
            return int(import_module(COMMANDS[name][0]).main(words[length:]))
    print(
        f"neoteny: there is no command {' '.join(words[:2])!r}; the commands are: {', '.join(COMMANDS)}",
        file=sys.stderr,
    )
    return 2


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items())
    return f"usage: neoteny COMMAND [--help] ...\n\nKeeps reinforcement-learning agents able to learn.\n\n{commands}"
