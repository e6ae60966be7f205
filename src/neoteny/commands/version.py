"""``neoteny version``."""

from __future__ import annotations

from neoteny import __version__
from neoteny.arguments import Parser
from neoteny.commands import COMMANDS


def main(argv: list[str]) -> int:
    """Run ``neoteny version``."""
    Parser(prog="neoteny version", description=COMMANDS["version"]).parse_args(argv)
    print(f"neoteny {__version__}")
    return 0
