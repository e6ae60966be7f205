"""A verdict a person can read: whether a network lost its plasticity, by which measure, and from which step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LATE = 0.25
"""The last share of a run, over which a measure is judged by its median."""


class Rule(NamedTuple):
    """When a measure says that plasticity is lost."""

    measure: str
    threshold: float
    above: bool
    """Whether it is lost above the threshold, or below it."""
    relative: bool
    """Whether it is judged over what it was at first, or as it is."""
    healthy: str
    decides: bool
    """Whether it decides by itself, or is only a sign."""


RULES = (
    Rule("trainability", 6.0, True, False, "1 to 4.9: a trained network fits less easily than a new one", True),
    Rule("grama_inactive", 0.5, True, False, "0 to 0.25", True),
    Rule("dormant_0.1", 0.5, True, False, "0 to 0.3", True),
    Rule("effective_rank", 0.1, False, True, "it falls to 0.2 to 0.5 while a task is learned, then stays", False),
    Rule("gradient_l2", 0.02, False, True, "it changes with the returns, and does not vanish", False),
    Rule("fresh_gradient_share", 0.0002, False, False, "it falls as 1/k while the buffer fills; SWD slows that", False),
    Rule("churn", 0.01, False, True, "it changes with the returns, and does not vanish", False),
)
"""From runs of TD3, and networks made dormant on purpose; see docs/plasticity.md."""


def rules_of(network: str) -> tuple[Rule, ...]:
    """The rules for a network by its name. An actor's trainability is only a sign.

    As a policy becomes certain its outputs grow far beyond the tanh that bounds actions: they are harder to move, and
    need not be. Actors of healthy runs are met at 7 and more.
    """
    if network != "actor":
        return RULES
    return tuple(rule._replace(decides=False) if rule.measure == "trainability" else rule for rule in RULES)


class Finding(NamedTuple):
    """What one measure says."""

    rule: Rule
    first: float
    late: float
    lost: bool
    since: int | None
    """The step from which on it says so without a break."""


def judge(rule: Rule, steps: Sequence[int], values: Sequence[float | None]) -> Finding | None:
    """What a measure says of its values over training, one for each step; None if there are too few."""
    known = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
    if len(known) < 2:
        return None
    numbers = np.array([value for _, value in known], np.float64)
    first = float(numbers[0])
    judged = numbers / first if rule.relative and first != 0 else numbers
    beyond = judged > rule.threshold if rule.above else judged < rule.threshold
    late = max(1, round(len(numbers) * LATE))
    lost = bool(np.median(beyond[-late:].astype(float)) > 0.5)
    since = None
    if lost:
        last_good = np.flatnonzero(~beyond)
        since = known[int(last_good[-1]) + 1][0] if last_good.size and last_good[-1] + 1 < len(known) else known[0][0]
    return Finding(rule, first, float(np.median(numbers[-late:])), lost, since)
