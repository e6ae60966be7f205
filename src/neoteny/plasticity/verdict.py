"""What measures over a run show: how each began and ended, whether it is beyond a bound, and whether values diverge.

A bound alone is no verdict: `Alarms` says how often it is wrong, and only a measure that is seldom wrong may call a run
lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LATE = 0.25
"""The last share of a run, over which a measure is taken by its median."""


MOST_FALSE_ALARMS = 1 / 20
"""Of healthy runs: a measure with more of them never calls a run lost."""
FAR = 10.0
"""So many times the largest value that the returns allow, and values diverge."""


class Rule(NamedTuple):
    """A measure, and a bound that it stayed within in short runs that learned well."""

    measure: str
    bound: float
    above: bool
    """Whether the bound is an upper one, or a lower one."""
    relative: bool
    """Whether the bound is on the measure over what it was at first, or on the measure itself."""
    healthy: str

    def describe(self) -> str:
        """The bound in a word or two."""
        return f"{'above' if self.above else 'below'} {self.bound:g}{' x first' if self.relative else ''}"


RULES = (
    Rule("fresh_twin_gap", 1.25, True, False, "below 1 once a network has learned something"),
    Rule("trainability", 5.0, True, False, "0.3 to 4.2"),
    Rule("grama_inactive", 0.5, True, False, "0 to 0.25"),
    Rule("dormant_0.1", 0.5, True, False, "0 to 0.3"),
    Rule("effective_rank", 0.1, False, True, "it falls to 0.2 to 0.5 while a task is learned, then stays"),
    Rule("ntk_effective_rank", 0.1, False, True, "it rises at first, then falls slowly"),
    Rule("gradient_l2", 0.02, False, True, "it changes with the returns, and does not vanish"),
    Rule("fresh_gradient_share", 0.0002, False, False, "it falls as 1/k while the buffer fills; SWD slows that"),
    Rule("churn", 0.01, False, True, "it changes with the returns, and does not vanish"),
)
"""From runs of TD3, and networks made dormant on purpose; see docs/plasticity.md."""


class Alarms(NamedTuple):
    """How often a measure was wrong at its bound, on runs of which it is known whether they are damaged."""

    measure: str
    bound: float
    healthy: int
    false_alarms: int
    """Of the healthy runs."""
    damaged: int
    misses: int
    """Of the damaged ones."""

    def may_judge(self, rule: Rule) -> bool:
        """Whether a measure beyond this rule's bound may call a run lost: it seldom errs, and it finds something."""
        same = (self.measure, self.bound) == (rule.measure, rule.bound)
        return same and 0 < self.healthy * MOST_FALSE_ALARMS >= self.false_alarms and self.misses < self.damaged


class Observation(NamedTuple):
    """What one measure shows."""

    rule: Rule
    first: float
    late: float
    outside: bool
    """Whether most of its late values are beyond the bound."""
    since: int | None
    """The step from which on they are so without a break."""


def judge(rule: Rule, steps: Sequence[int], values: Sequence[float | None]) -> Observation | None:
    """What a measure shows by its values over training, one for each step; None if there are too few."""
    known = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
    if len(known) < 2:
        return None
    numbers = np.array([value for _, value in known], np.float64)
    first = float(numbers[0])
    judged = numbers / first if rule.relative and first != 0 else numbers
    beyond = judged > rule.bound if rule.above else judged < rule.bound
    late = max(1, round(len(numbers) * LATE))
    outside = bool(np.median(beyond[-late:].astype(float)) > 0.5)
    since = None
    if outside:
        last_good = np.flatnonzero(~beyond)
        since = known[int(last_good[-1]) + 1][0] if last_good.size and last_good[-1] + 1 < len(known) else known[0][0]
    return Observation(rule, first, float(np.median(numbers[-late:])), outside, since)


def rising(returns: Sequence[float]) -> bool | None:
    """Whether returns are rising: the mean of their last third is above that of the middle and of the first third, and
    so is the mean of their last sixth, so that a collapse at the end does not pass.

    In the order of training; None if there are fewer than three. A rule that errs towards yes: returns that only vary
    pass it about one time in four, and a false alarm is worse than none.
    """
    if len(returns) < 3:
        return None
    values = np.asarray(returns, np.float64)
    first, middle, last = (float(np.mean(part)) for part in np.array_split(values, 3))
    newest = float(np.mean(values[-math.ceil(len(values) / 6) :]))
    return min(last, newest) > max(first, middle)


class Values(NamedTuple):
    """How large an agent's values are, late in a run, beside what its returns allow."""

    q_max: float
    """The largest |Q| of a batch, by its median."""
    target_abs: float
    """The mean |target| of a batch, by its median."""
    largest: float
    """The largest return of an episode, in size."""
    allowed: float
    """The largest value that such returns allow, in size."""

    @property
    def diverge(self) -> bool:
        """Whether values are far beyond what the returns allow."""
        return not self.q_max <= FAR * self.allowed


def values_of(
    q_max: Sequence[float | None],
    target_abs: Sequence[float | None],
    returns: Sequence[float],
    length: float,
    gamma: float,
) -> Values | None:
    """How large values are over the last quarter of a run; None if they, or returns, are not known.

    A value is a discounted sum of rewards that goes on beyond the end of an episode that was cut: of at most
    1 / (1 - gamma) rewards, where an episode's return is of `length` of them. A value that is null in the log, because
    it was not finite, counts as infinite.

    Args:
        q_max: the largest |Q| of each line of metrics, in order.
        target_abs: the mean |target| of each.
        returns: of episodes.
        length: of an episode, in steps.
        gamma: the discount.
    """
    if not q_max or not returns:
        return None
    sizes, targets = (
        np.array([math.inf if value is None else value for value in values[-max(1, round(len(values) * LATE)) :]])
        for values in (q_max, target_abs)
    )
    largest = float(np.abs(returns).max())
    beyond = max(1.0, 1.0 / (max(1.0 - gamma, 1e-4) * max(length, 1.0)))
    with np.errstate(over="ignore"):  # of numbers near the largest there are, whose middle is then infinite
        middles = float(np.median(sizes)), float(np.median(targets))
    return Values(*middles, largest, max(largest, 1e-6) * beyond)
