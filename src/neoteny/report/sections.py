"""The sections of a report: what each shows, made of records and statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from neoteny.report.scores import Record
from neoteny.report.shapes import Curve, Dot, Dots, Lines, Section, curve
from neoteny.report.statistics import Estimate
from neoteny.report.verdict import Finding

SPREAD = "Mean over runs, and one standard deviation of them around it."
MEASURES = {
    "trainability": "loss over a new network's",
    "grama_inactive": "inactive units, share",
    "dormant_0.1": "dormant units, share",
    "effective_rank": "rank of features",
    "gradient_l1": "gradient, L1 norm",
    "fresh_gradient_share": "share of the newest",
    "churn": "how far outputs move",
}
NORMALISED = "normalised score"


def tasks_of(records: Sequence[Record]) -> list[str]:
    """The tasks, in the order in which they come."""
    return list(dict.fromkeys(record.task for record in records))


def curve_section(records: Sequence[Record], methods: Sequence[str]) -> Section:
    """Returns over training."""
    panels = []
    for task in tasks_of(records):
        here = [record for record in records if record.task == task]
        drawn = _curves(here, methods, "return")
        label = "evaluation return" if all(record.evaluated for record in here) else "return of training episodes"
        panels.append(Lines(task, "step", label, drawn))
    return Section("curves", "Learning curves", SPREAD, tuple(panels))


def _curves(records: Sequence[Record], methods: Sequence[str], name: str) -> tuple[Curve, ...]:
    found = []
    for method in methods:
        mine = [record for record in records if record.method == method]
        runs = [
            (r.steps, r.returns) if name == "return" else r.series[name]
            for r in mine
            if name == "return" or name in r.series
        ]
        if drawn := curve(method, runs):
            found.append(drawn)
    return tuple(found)


def difference_section(findings: Sequence[Finding]) -> Section:
    """The gain of each comparison, with the interval of its test."""
    dots = [
        Dot(
            f"{finding.claim.method} against {finding.claim.baseline}"
            + ("" if finding.claim.measure == "score" else f", {finding.claim.measure}"),
            finding.claim.method,
            finding.test.gain,
            finding.test.low,
            finding.test.high,
            finding.claim.effect,
        )
        for finding in findings
        if finding.test is not None
    ]
    text = (
        "How much better, as a share of the baseline's mean, with the gains that a permutation test within tasks does "
        "not reject at 5%. A star is the paper's effect. Where no interval is drawn, so few runs bound none."
    )
    panels = (Dots("", "gain over the baseline", tuple(dots), 0.0, True),) if dots else ()
    return Section("differences", "Differences", text, panels)


def aggregate_section(aggregates: Mapping[str, Mapping[str, Estimate]]) -> Section:
    """IQM, median, mean, optimality gap."""
    panels = [
        Dots(
            name + (", less is better" if name == "optimality gap" else ""),
            NORMALISED,
            tuple(Dot(method, method, *estimate) for method, estimate in by_method.items()),
        )
        for name, by_method in aggregates.items()
    ]
    text = (
        "Over all tasks, with rliable's 95% stratified bootstrap intervals. These are too short at 5 seeds: the "
        "verdict does not come from them."
    )
    return Section("aggregates", "Aggregates", text, tuple(panels))


def profile_section(
    profiles: Mapping[str, tuple[np.ndarray, np.ndarray]], thresholds: np.ndarray, normal: Mapping[str, np.ndarray]
) -> Section:
    """The share of runs above each score."""
    curves = [
        Curve(method, thresholds, share, low_high[0], low_high[1], f"{normal[method].size} runs")
        for method, (share, low_high) in profiles.items()
    ]
    panel = Lines("", NORMALISED, "share of runs above it", tuple(curves))
    text = (
        "The share of runs on all tasks whose normalised score is above each, with 95% bootstrap intervals (rliable)."
    )
    return Section("profiles", "Performance profiles", text, (panel,) if curves else ())


def improvement_section(improvements: Mapping[tuple[str, str], Estimate]) -> Section:
    """How often a run of one is better than a run of the other."""
    dots = [Dot(f"{method} > {baseline}", method, *estimate) for (method, baseline), estimate in improvements.items()]
    text = (
        "The probability that a run of the first scores above a run of the second on the same task, mean over tasks, "
        "with 95% bootstrap intervals (rliable)."
    )
    panels = (Dots("", "probability", tuple(dots), 0.5, span=(-0.03, 1.03)),) if dots else ()
    return Section("improvement", "Probability of improvement", text, panels)


def runtime_section(records: Sequence[Record], methods: Sequence[str]) -> Section:
    """How long runs took, each task apart."""
    panels = []
    timed = [record for record in records if record.done and not math.isnan(record.seconds)]
    unit, word = (3_600, "hours") if max((r.seconds for r in timed), default=0) >= 1_800 else (60, "minutes")
    for task in tasks_of(timed):
        dots = []
        for method in methods:
            times = np.array([r.seconds for r in timed if (r.method, r.task) == (method, task)]) / unit
            if len(times):
                dots.append(Dot(method, method, float(times.mean()), float(times.min()), float(times.max())))
        longest = max(dot.high for dot in dots)
        panels.append(Dots(task, f"{word} a run", tuple(dots), span=(0.0, 1.08 * longest)))
    text = (
        "From a run's start to its end, on the machine where it ran, evaluations and checkpoints and whatever "
        "else ran there included: mean, and from the shortest to the longest."
    )
    return Section("runtime", "Runtime and cost", text, tuple(panels))


def plasticity_sections(records: Sequence[Record], methods: Sequence[str]) -> Iterator[Section]:
    """Every measure of plasticity over training, for each task and network."""
    text = (
        "Whether the network can still learn, over training; docs/plasticity.md says what each measure means. " + SPREAD
    )
    first = True
    for task in tasks_of(records):
        here = [record for record in records if record.task == task]
        names = [name for record in here for name in record.series if "/" in name]
        networks = sorted({name.split("/")[0] for name in names}, key=lambda name: (name == "actor", name))
        for network in networks:
            lines = [
                Lines(measure, "step", label, curves)
                for measure, label in MEASURES.items()
                if (curves := _curves(here, methods, f"{network}/{measure}"))
            ]
            if lines:
                name = f"plasticity-{task}-{network}".replace("/", "-").replace(" ", "-").replace(",", "")
                yield Section(name, f"Plasticity: {task}, {network}", text, tuple(lines), folded=not first)
                first = False


def age_section(records: Sequence[Record], methods: Sequence[str]) -> Section:
    """How old what is replayed is."""
    panels = []
    for task in tasks_of(records):
        here = [record for record in records if record.task == task]
        if curves := _curves(here, methods, "age_mean"):
            panels.append(Lines(task, "step", "mean age, in transitions", curves))
    return Section("ages", "Sampled ages", "The mean age of what was replayed. " + SPREAD, tuple(panels))
