"""Commands that are groups of others, such as ``neoteny bench``: the first word after them names a module."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from neoteny.arguments import table
from neoteny.errors import UsageError
from neoteny.wording import did_you_mean


def run_one(group: str, noun: str, about: Mapping[str, str], argv: list[str]) -> int:
    """Run the ``main`` of the module that the first word names, or list the modules.

    Args:
        group: the command, and the package of ours whose modules it runs.
        noun: what one of them is called in messages.
        about: the names, and what each does in a line.
        argv: the words after the command.

    Returns:
        the exit status.
    """
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: neoteny {group} NAME [--help] ...\n\n" + table(dict(about)))
        return 0
    if argv[0] not in about:
        known = did_you_mean(argv[0], about) or f"; the {noun}s are: {', '.join(about)}"
        raise UsageError(f"there is no {noun} {argv[0]!r}{known}")
    status: int = importlib.import_module(f"neoteny.{group}.{argv[0]}").main(argv[1:])
    return status
