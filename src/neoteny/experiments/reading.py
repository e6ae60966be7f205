"""A plan's file as data; one that cannot be read, or is not TOML, is one sentence with the file and the line."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from pathlib import Path
from typing import Any

from neoteny.errors import UsageError

LARGEST = 1_000_000
"""Bytes of a plan's file at most. The longest of ours has 3,586."""


def read(path: Path, name: str) -> tuple[dict[str, Any], str]:
    """Return what a plan's file says, and its text. name: what the user calls it."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    if len(content) > LARGEST:
        raise UsageError(f"{name} has more than {LARGEST:,} bytes, which no plan needs: is it another file?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wrong = f"the byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise UsageError(f"{name}, line {line}: {wrong}: save the file as UTF-8") from error
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {_shortened(str(error))}") from error
    except RecursionError as error:
        raise UsageError(f"{name}, line {_refused(text)}: this is nested too deeply for a plan") from error
    except ValueError as error:  # Python's limit on the digits of a number
        raise UsageError(f"{name}, line {_refused(text)}: a number has too many digits") from error


def _refused(text: str) -> int:
    """Return the line at which tomllib gives up: up to any line before it the text is TOML, or only cut short."""
    lines = text.split("\n")

    def gives_up(count: int) -> bool:
        try:
            tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            return False
        except (ValueError, RecursionError):
            return True
        return False

    return bisect_left(range(len(lines)), True, key=gives_up)


def _shortened(sentence: str) -> str:
    """Return what tomllib says, which can quote whole keys, with the place at its end."""
    said, place = re.fullmatch(r"(?s)(.*?)( \(at [^)]*\))?", sentence).groups("")  # type: ignore[union-attr]
    return (said if len(said) <= 100 else f"{said[:100]}...") + place
