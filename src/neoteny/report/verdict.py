"""A verdict on a claim, from a permutation test within tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neoteny.report.permutation import LEVEL, Test, permutation_test
from neoteny.report.scores import Record, Scores
from neoteny.report.suites import suite_of
from neoteny.wording import counted

FEWEST = 5
"""Seeds on every task, below which nothing is decided."""
NAMED = 10
"""Runs that a sentence names at most; a table names all."""


@dataclass(frozen=True)
class Claim:
    """That one method does better than another."""

    method: str
    baseline: str
    effect: float | None = None
    """The paper's gain, as a share of the baseline's mean; None where it gives none."""
    measure: str = "score"
    """What is compared: a run's score; the mean of all its evaluations, as mean_return; or late in training a measure
    of plasticity, as batch/network/measure (on the training batch), probe/network/measure (on the fixed probe batch),
    or network/measure: on the training batch, or on the probe batch if it is measured only there."""
    lower: bool = False
    """Whether less of it is better."""
    paper: str = ""
    """What the paper says; empty where it says nothing of this."""
    suite: str = ""
    """Whose tasks are compared; all tasks if empty."""


@dataclass(frozen=True)
class Finding:
    """A claim, what was found, and the verdict."""

    claim: Claim
    outcome: str
    """reproduced, refuted or undecided; better, worse or undecided if the paper makes no such claim; or no verdict."""
    why: str
    test: Test | None
    runs: tuple[int, int] = (0, 0)
    tasks: tuple[str, ...] = ()
    seeds: tuple[int, int] = (0, 0)
    """The fewest and the most of either method on any task."""
    planned: int = 0
    """How many runs of both methods there should be; 0 if that is not known."""
    left_out: tuple[str, ...] = ()
    """The runs of both methods whose score is not finite, by name."""


def judge(
    claim: Claim,
    scores: Scores,
    speaks: bool = True,
    planned: Mapping[tuple[str, str], int] | None = None,
    left_out: Sequence[Record] = (),
) -> Finding:
    """The verdict on a claim, from the scores of finished runs.

    speaks: whether these runs can decide anything at all. planned: how many runs each method should have on
    each task. left_out: finished runs whose score is not finite. Without them the numbers favour their method, since
    they most likely diverged, so there is no verdict on it.
    """
    a, b = (scores.get(name, {}) for name in (claim.method, claim.baseline))
    tasks = tuple(task for task in a if task in b and claim.suite in ("", suite_of(task)))
    names = _lost(claim, (a, b), left_out)
    wanted = sum(
        count
        for (method, task), count in (planned or {}).items()
        if method in (claim.method, claim.baseline) and claim.suite in ("", suite_of(task))
    )
    undecided = "undecided" if speaks else "no verdict"
    if not tasks:
        measured = "" if claim.measure == "score" else f" that measured {claim.measure}"
        if names:
            why = f"{without(names, claim.measure)} No task has other runs of both."
            return Finding(claim, "no verdict", why, None, planned=wanted, left_out=names)
        return Finding(claim, undecided, f"No task has finished runs of both{measured} yet.", None)
    counts = [len(by_task[task]) for task in tasks for by_task in (a, b)]
    runs = sum(counts[::2]), sum(counts[1::2])
    sign = -1 if claim.lower else 1
    test = permutation_test([sign * a[task] for task in tasks], [sign * b[task] for task in tasks])
    if undecided == "no verdict":
        outcome, why = undecided, "At this scale the runs decide nothing."
    elif names:
        outcome, why = "no verdict", "A run that diverged counts against its method, and no number says by how much."
    elif sum(runs) < wanted:
        outcome, why = "undecided", f"Only {sum(runs)} of the {wanted} planned runs are done."
    elif min(counts) < FEWEST:
        outcome, why = "undecided", f"Fewer than {FEWEST} seeds decide nothing."
    else:
        outcome, why = _decide(claim, test)
    why = f"{without(names, claim.measure)} {why}".strip()
    return Finding(claim, outcome, why, test, runs, tasks, (min(counts), max(counts)), wanted, names)


def _lost(claim: Claim, scores: Sequence[Mapping[str, object]], left_out: Sequence[Record]) -> tuple[str, ...]:
    """The runs without a finite score that belong to a claim: on tasks of its suite where both methods have runs."""
    sides = [
        {*known, *(record.task for record in left_out if record.method == method)}
        for method, known in zip((claim.method, claim.baseline), scores, strict=True)
    ]
    return tuple(
        record.name
        for record in left_out
        if record.method in (claim.method, claim.baseline)
        and all(record.task in side for side in sides)
        and claim.suite in ("", suite_of(record.task))
    )


def without(names: Sequence[str], measure: str = "score") -> str:
    """Which runs have no finite score, or no finite value of another measure; nothing if there are none."""
    if not names:
        return ""
    few = f"{'; '.join(names[:NAMED])}{f'; and {len(names) - NAMED} more' if len(names) > NAMED else ''}"
    has, is_ = ("has", "is") if len(names) == 1 else ("have", "are")
    return f"{counted(len(names), 'run')} {has} no finite {measure} and {is_} left out: {few}."


def _decide(claim: Claim, test: Test) -> tuple[str, str]:
    for_it, against = ("reproduced", "refuted") if claim.paper else ("better", "worse")
    half = None if claim.effect is None else claim.effect / 2
    if test.p <= LEVEL and test.gain > 0:
        small = half is not None and test.high < half
        return for_it, "The direction holds; the size is less than half of the paper's." if small else ""
    if test.p <= LEVEL:
        return against, "The difference is significant in the other direction."
    if half is not None and test.high < half:
        return against, f"Half of the paper's effect, {half:+.1%}, is outside the interval."
    return (
        "undecided",
        "The interval contains both zero and half of the paper's effect." if half else "The interval contains zero.",
    )
