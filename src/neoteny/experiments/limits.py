"""What no plan has, whatever the key: endless depth and length, strange characters, numbers that nobody runs with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sized
from typing import Any

from neoteny.experiments.source import Keys, Source, dotted
from neoteny.settings.types import shown

MOST_RUNS = 10_000
"""Runs of a plan at most: all games of Atari with five seeds and twenty methods are 5,700."""
_DEEPEST = 6
"""Tables and lists within each other; laptop.methods.NAME.remedy has four."""
_LONGEST = 500
"""Characters of a key or a string; what the paper says may have ten times as many."""
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that move the cursor, end the line or turn the text around, and that no name needs."""
_WHOLE = 2**32 - 1
"""The largest whole number that a plan may have: seeds have 32 bits."""
_SINGLE = (1.2e-38, 3.4e38)
"""The smallest and the largest number of single precision, in which networks compute."""
_LIMITS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("widths", "actor_width", "critic_width", "cnn_width"), (1, 2**16)),
    **dict.fromkeys(("actor_blocks", "critic_blocks"), (0, 100)),
    **dict.fromkeys(("target_noise", "target_noise_clip", "exploration_noise", "weight_decay"), (0, _SINGLE[1])),
    **dict.fromkeys(("regrama_tau", "redo_tau"), (0, _SINGLE[1])),
    **dict.fromkeys(("n_step", "num_envs", "policy_delay", "utd", "eval_episodes"), (0, 10_000)),
    "batch_size": (1, 2**20),
    "num_critics": (1, 100),
    "num_bins": (1, 10_000),
    "action_repeat": (1, 1_000),
    "threads": (1, 1_000),
}
"""What settings are refused outside of, where the settings themselves refuse less."""


def check_plain(data: Mapping[str, Any], source: Source) -> None:
    """Refuse what no plan has anywhere, whatever the key: depth, length, strange characters, numbers without end."""
    left: list[tuple[tuple[str | int, ...], Any]] = [((), data)]
    while left:
        keys, value = left.pop()
        inside = list(value.items()) if isinstance(value, Mapping) else list(value) if _is_list(value) else []
        if len(keys) > _DEEPEST:
            raise source.wrong(keys[:1], f"{dotted(keys[:1])} is nested too deeply for a plan")
        if len(inside) > MOST_RUNS:
            raise source.wrong(
                keys, f"{dotted(keys)} has {len(inside):,} entries: a plan has at most {MOST_RUNS:,} runs"
            )
        if isinstance(value, Mapping):
            for name in value:
                _check_text(name, (*keys, name), source, "a key in " + (dotted(keys) or "it"))
        if isinstance(value, str):
            _check_text(value, keys, source, dotted(keys))
        if isinstance(value, float) and not math.isfinite(value):
            raise source.wrong(_of_a_setting(keys), f"{dotted(keys)} must be a finite number, got {value}")
        if isinstance(value, int) and value.bit_length() > 64:
            raise source.wrong(_of_a_setting(keys), f"{dotted(keys)} must be a number of at most 64 bits")
        named = inside if isinstance(value, Mapping) else enumerate(inside)
        left += [((*keys, name), one) for name, one in reversed(list(named))]


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _of_a_setting(keys: tuple[str | int, ...]) -> Keys:
    """The keys of the list that a value is in: a list is one statement."""
    return keys[:-1] if keys and isinstance(keys[-1], int) else keys


def _check_text(text: str, keys: Keys, source: Source, what: str) -> None:
    longest = _LONGEST * 10 if keys[-1] == "paper" else _LONGEST
    if len(text) > longest:
        raise source.wrong(keys, f"{what} has {len(text):,} characters: at most {longest:,} are read")
    if strange := _UNSEEN.search(text):
        raise source.wrong(keys, f"{what} contains the character U+{ord(strange[0]):04X}, which cannot be shown")


def check_number(name: str, value: Any, keys: Keys, source: Source) -> None:
    """Refuse a number, or one of a list, with which no run makes sense."""
    if name == "widths" and not value:
        raise source.wrong(keys, f"{dotted(keys)} is empty: a network has at least one hidden layer")
    least, most = _LIMITS.get(name, (-math.inf, math.inf))
    for one in value if isinstance(value, tuple) else [value]:
        if isinstance(one, bool) or not isinstance(one, (int, float)):
            continue
        if not least <= one <= most:
            limits = f">= {least:g}" if most == _SINGLE[1] else f"in {least:g}..{most:,}"
            raise source.wrong(keys, f"{dotted(keys)} must be {limits}, got {shown(one)}")
        if isinstance(one, int) and abs(one) > _WHOLE:
            raise source.wrong(keys, f"{dotted(keys)} must be at most {_WHOLE:,}, got {shown(one)}")
        if isinstance(one, float) and one and not _SINGLE[0] <= abs(one) <= _SINGLE[1]:
            raise source.wrong(
                keys, f"{dotted(keys)} must be 0 or between {_SINGLE[0]} and {_SINGLE[1]} in size, got {one}"
            )


def check_count(parts: Mapping[str, Sized], grid: Mapping[str, Sized], source: Source) -> None:
    """Refuse more runs than anyone makes, before they are written out."""
    counts: dict[tuple[str, ...], int] = {(key,): len(values) for key, values in parts.items()}
    counts |= {("grid", key): len(values) for key, values in grid.items()}
    if (count := math.prod(counts.values())) > MOST_RUNS:
        said = f"{count:,}" if count < 10**15 else "more than 10^15"
        factors = few([f"{number:,} of {dotted(keys)}" for keys, number in counts.items() if number > 1])
        longest = max(counts, key=lambda keys: counts[keys])
        raise source.wrong(longest, f"it makes {said} runs ({factors}): a plan has at most {MOST_RUNS:,}")


def few(names: Iterable[str], most: int = 8) -> str:
    """Names in a sentence; of many the first ones, and how many more there are."""
    listed = [name if len(name) <= 60 else f"{name[:57]}..." for name in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most:,} more" if len(listed) > most else "")
