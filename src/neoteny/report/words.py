"""What was found, in words."""

from __future__ import annotations

import math

from neoteny.report.about import About
from neoteny.report.permutation import LEVEL, PERMUTATIONS
from neoteny.report.scores import AT_LEAST, LARGEST, LAST, MEAN
from neoteny.report.statistics import REPS
from neoteny.report.verdict import FEWEST, Finding
from neoteny.wording import counted

BATCHES = {"batch": "training batch", "probe": "probe batch", "replay": "replay"}
"""On which plasticity is measured; the probe batch was drawn once, when learning started."""
METHOD = (
    f"A run's score is its mean evaluation return over the last {LAST:.0%} of its evaluations, and at least "
    f"{AT_LEAST} of them. Only finished runs have one.",
    f"A run has no score if one of these returns is NaN, infinite or beyond {LARGEST:.0e}. It is left out of every "
    "number and named; that favours its method if it diverged, so there is no verdict on a comparison with such a run.",
    "The difference is that of the means, as a share of the baseline's absolute mean on the task (of the standard "
    "deviation within methods, where that is larger), mean over tasks.",
    f"The verdict comes from a permutation test within tasks at {LEVEL:.0%}, two-sided: every way of exchanging the "
    f"two methods' runs is looked at, or {PERMUTATIONS:,} of them, drawn. The interval contains the gains that this "
    "test does not reject.",
    "The detectable effect is that of this test: experiments are simulated with as many runs, normal scores and the "
    "spread that was seen.",
    "The permutation test is exact if the methods do not differ at all. If they have equal means but unequal spread, "
    "5 seeds on one task call a difference somewhat more often than 5%.",
    f"Aggregates, profiles and probabilities of improvement are rliable's, seeded, with {REPS:,} resamples within "
    "tasks. They are of normalised scores: what counts as 0 and as 1 on each task is in a table above. Suites are "
    "never pooled.",
)
_FEW = f"Fewer than {FEWEST} seeds on any task decide nothing, nor does a plan that is not finished"
_ALONE = "Each comparison is tested at that level by itself."


def method(about: About) -> tuple[str, ...]:
    """How everything was computed, a sentence or two each."""
    if not about.paper:
        return (*METHOD, "Better or worse: significant. Otherwise undecided.", f"{_FEW}. {_ALONE}")
    return (
        *METHOD,
        "Reproduced: significant in the paper's direction. Refuted: significant against it, or half of the paper's "
        "effect is outside the interval. Otherwise undecided. Where the paper makes no such claim: better, worse or "
        "undecided.",
        f"{_FEW}, nor one so small that it says nothing of the paper. {_ALONE}",
    )


def comparison(finding: Finding) -> str:
    """What is compared: swd against uniform, on MuJoCo."""
    claim = finding.claim
    suite = f", on {claim.suite}" if claim.suite else ""
    return f"{claim.method} against {claim.baseline}{suite}{_measure(claim.measure, claim.lower)}"


def _measure(name: str, lower: bool) -> str:
    """What is measured and on which batch; nothing for the score."""
    where, _, rest = name.partition("/")
    if name == MEAN:
        return ", mean of all evaluations"
    if not rest:
        return ""
    batch = f"{rest} on the {BATCHES[where]}" if where in BATCHES else name
    return f", {batch}{' (less is better)' if lower else ''}"


def evidence(finding: Finding) -> str:
    """The interval, the test and the number of runs."""
    test = finding.test
    if test is None:
        return f"There are no runs to compare yet{_left_out(finding)}."
    interval = f"95% interval {percent(test.low)} to {percent(test.high)}"
    if math.isinf(test.low) and math.isinf(test.high):
        interval = "So few runs bound no 95% interval"
    few, many = finding.seeds
    seeds = f"{few} seed{'s' * (few != 1)}" if few == many else f"{few} to {many} seeds"
    tasks = f"{len(finding.tasks)} task{'s' * (len(finding.tasks) != 1)}"
    return (
        f"{interval}; permutation test within tasks, {_p(test.p)}; {finding.runs[0]} and {finding.runs[1]} runs, "
        f"on {tasks}, {seeds} on each{_left_out(finding)}."
    )


def _left_out(finding: Finding) -> str:
    """How many runs these numbers are without; nothing if none."""
    names = finding.left_out
    return f"; {counted(len(names), 'run')} without a finite value left out" if names else ""


def paper(finding: Finding, about: About) -> str:
    """What the paper said of it; nothing if the runs have nothing to do with the paper."""
    claim = finding.claim
    if not claim.paper:
        return "The paper makes no such claim." if about.paper else ""
    size = "The size of this effect is not given."
    if claim.effect is not None:
        size = f"Its effect, as compared here: {percent(claim.effect)}."
    return f"The paper: {claim.paper}. {size}"


def detectable(finding: Finding) -> str:
    """What so many runs could have seen."""
    test = finding.test
    if test is None:
        return ""
    if math.isinf(test.detectable):
        return (
            f"These runs cannot detect any effect at {LEVEL:.0%}: with so few, the smallest p that the test can give "
            f"is {test.smallest_p:.2g}."
        )
    return f"So many runs, spread as these are, detect {percent(test.detectable)} four times in five."


def outcome(finding: Finding, about: About) -> str:
    """The verdict, with the scale where there is one."""
    return f"{finding.outcome}, {about.scale} scale" if about.scale else finding.outcome


def sentence(finding: Finding, about: About) -> str:
    """All of it."""
    parts = [
        f"{outcome(finding, about).capitalize()}: {comparison(finding)}.",
        f"{percent(finding.test.gain)} of the baseline's mean." if finding.test else "",
        evidence(finding),
        finding.why,
        detectable(finding) if finding.outcome in ("undecided", "no verdict") else "",
        paper(finding, about),
    ]
    return " ".join(part for part in parts if part)


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def percent(value: float) -> str:
    """With its sign; as many digits as mean something."""
    if math.isinf(value):
        return "no bound"
    if abs(value) < 10:
        return f"{value:+.1%}"
    return f"{value:+,.0%}" if abs(value) < 1e6 else f"{100 * value:+.3g}%"
