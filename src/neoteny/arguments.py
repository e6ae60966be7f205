"""Arguments of the command line: whole numbers as people write them, and errors that are one sentence."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import NoReturn

from neoteny.errors import UsageError
from neoteny.wording import did_you_mean

_NUMBER = re.compile(r"([+-]?(?:\d[\d_]*)(?:\.\d+)?(?:e[+-]?\d{1,2})?)([km]?)")
_SUFFIXES = {"": 1, "k": 1_000, "m": 1_000_000}


def whole_number(text: str) -> int:
    """The whole number that ``1000``, ``1_000``, ``1e3``, ``1k`` or ``0.001M`` is; ValueError for any other text."""
    if found := _NUMBER.fullmatch(text.strip().lower()):
        value = Decimal(found[1].replace("_", "")) * _SUFFIXES[found[2]]
        if value == int(value):
            return int(value)
    raise ValueError(f"a whole number is needed, such as 1000, 1_000, 1e3, 3k or 1M, got {text}")


def number(text: str) -> float:
    """The number that a text is, with the same suffixes: ``80k`` is 80000.0; ValueError if it is none."""
    try:
        if found := _NUMBER.fullmatch(text.strip().lower()):
            return float(found[1]) * _SUFFIXES[found[2]]
        return float(text)
    except ValueError as error:
        raise ValueError(f"a number is needed, such as 0.001, 1e-3, 80000 or 80k, got {text}") from error


class Parser(argparse.ArgumentParser):
    """argparse's parser, with `whole_number` for ``type=int``, and one sentence for what it does not understand."""

    def __init__(self, prog: str, description: str | None, add_help: bool = True, allow_abbrev: bool = True) -> None:
        super().__init__(prog=prog, description=description, add_help=add_help, allow_abbrev=allow_abbrev)
        self.register("type", int, _whole_number)

    def parse_args(self, args: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """As argparse's, with the flag that was probably meant."""
        found, unknown = self.parse_known_args(args)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            self.error(f"there is no argument {unknown[0]}{did_you_mean(unknown[0].split('=')[0], flags)}")
        return found

    def error(self, message: str) -> NoReturn:
        """As an error of ours, which the command line prints after the command's name."""
        raise UsageError(f"{message} ({self.prog} --help lists the arguments)")


def _whole_number(text: str) -> int:
    try:
        return whole_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def table(about: dict[str, str]) -> str:
    """Return names and what each is about, in two columns."""
    width = max(map(len, about))
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in about.items())
