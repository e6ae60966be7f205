"""Where a plan was read from, so that an error can name the file and the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neoteny.errors import UsageError

Keys = Sequence[str | int]
"""The way to a value: ("methods", "swd", "utd"), or ("claims", 1, "effect") for the second of a list."""


@dataclass(frozen=True)
class Source:
    """A plan's file, and the scale at which it is read."""

    name: str
    text: str = ""
    scale: str = "full"

    def wrong(self, keys: Keys, sentence: str) -> UsageError:
        """The error that says `sentence` of the value at `keys`, with its line; at laptop scale [laptop] goes first."""
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
    begins = 1
    for count in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("\n".join(lines[:count]) + "\n")
        except tomllib.TOMLDecodeError:  # in the middle of a statement
            continue
        if _holds(data, keys):
            return begins
        begins = count + 1
    return None


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
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'
