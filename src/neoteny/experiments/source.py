"""Where a plan was read from, so that an error can name the file and the line."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neoteny.errors import UsageError

Keys = Sequence[str | int]
"""The way to a value: ("methods", "swd", "utd"), or ("claims", 1, "effect") for the second of a list."""
_MAY_BEGIN = re.compile(r"\s*\[.*\]\s*(#.*)?$|.*=")
"""A line that may begin a statement: a table's header, or a key with its value; some are parts of longer values."""


@dataclass(frozen=True)
class Source:
    """A plan's file, and the scale at which it is read."""

    name: str
    text: str = ""
    scale: str = "full"

    def wrong(self, keys: Keys, sentence: str) -> UsageError:
        """The error that says `sentence` of the value at `keys`, with its line; the part of its scale goes first."""
        for way in ((self.scale, *keys), tuple(keys)):
            line = line_of(self.text, way)
            if keys and line is not None:
                return UsageError(f"{self.name}, line {line}: {sentence}")
        return UsageError(f"{self.name}: {sentence}")


def line_of(text: str, keys: Keys) -> int | None:
    """The line, from 1, on which the statement begins that gives the value at `keys`; None if none does.

    tomllib tells no lines. But the first lines of a TOML file are TOML themselves wherever a statement ends, so the
    statement sought ends on the first line up to which they hold the value, and begins after the end of the one before.
    """
    lines = text.split("\n")
    ends = [number for number, line in enumerate(lines) if _MAY_BEGIN.match(line)] + [len(lines)]
    parsed: dict[int, dict[str, Any] | None] = {}

    def up_to(index: int) -> dict[str, Any] | None:
        """What the lines up to an end hold; None in the middle of a statement."""
        if index not in parsed:
            try:
                parsed[index] = tomllib.loads("\n".join(lines[: ends[index]]) + "\n")
            except tomllib.TOMLDecodeError:
                parsed[index] = None
        return parsed[index]

    def held(index: int) -> bool:
        whole = next((data for later in range(index, len(ends)) if (data := up_to(later)) is not None), {})
        return _holds(whole, keys)

    first = bisect_left(range(len(ends)), True, key=held)
    if first == len(ends):
        return None
    return next((ends[index] + 1 for index in reversed(range(first)) if up_to(index) is not None), 1)


def _holds(data: Any, keys: Keys) -> bool:
    for key in keys:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def dotted(keys: Keys) -> str:
    """Keys as TOML writes them: methods."swd + redo".utd, claims[1].effect."""
    parts = [f"[{key}]" if isinstance(key, int) else f".{_quoted(key)}" for key in keys]
    return "".join(parts).removeprefix(".")


def _quoted(key: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_-]+", key):
        return key
    return f'"{key}"' if key.isprintable() else json.dumps(key)
