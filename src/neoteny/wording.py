"""Wording that many messages share: a number with its noun, and the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def counted(number: int, noun: str) -> str:
    """``counted(1, "episode")`` is "1 episode", ``counted(2_000, "step")`` is "2,000 steps"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to end a sentence with, if one of the known names is close to `name`; else nothing."""
    names = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), names, n=1)
    return f"; did you mean {names[close[0]]}?" if close else ""
