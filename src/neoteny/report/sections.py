"""The sections of a report: what each shows, made of records and statistics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from neoteny.plasticity.drift import late_curve
from neoteny.report import words
from neoteny.report.scores import Record
from neoteny.report.shapes import Curve, Dot, Dots, Lines, Section, curve
from neoteny.report.statistics import Estimate, profiles
from neoteny.report.verdict import Finding
from neoteny.wording import counted

SPREAD = "Mean over runs, and one standard deviation of them around it."
MEASURES = {
    "fresh_twin_gap": "loss over a fresh twin's",
    "trainability": "loss over a new network's",
    "grama_inactive": "inactive units, share",
    "gradient_sparsity": "gradient entries below 1e-8, share",
    "dormant_0.1": "dormant units, share",
    "effective_rank": "rank of features",
    "ntk_effective_rank": "rank of the NTK",
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
    curves = []
    for method in methods:
        mine = [record for record in records if record.method == method]
        runs = [
            (r.steps, r.returns) if name == "return" else r.series[name]
            for r in mine
            if name == "return" or name in r.series
        ]
        if drawn := curve(method, runs):
            curves.append(drawn)
    return tuple(curves)


def difference_section(findings: Sequence[Finding]) -> Section:
    """The gain of each comparison, with the interval of its test."""
    dots = [
        Dot(
            words.comparison(finding),
            finding.claim.method,
            finding.test.gain,
            finding.test.low,
            finding.test.high,
            finding.claim.effect,
        )
        for finding in findings
        if finding.test is not None
    ]
    star = "A star is the paper's effect. " if any(dot.mark is not None for dot in dots) else ""
    text = (
        "How much better, as a share of the baseline's mean, with the gains that a permutation test within tasks does "
        f"not reject at 5%. {star}Where no interval is drawn, so few runs bound none."
    )
    panels = (Dots("", "gain over the baseline", tuple(dots), 0.0, True),) if dots else ()
    return Section("differences", "Differences", text, panels)


def aggregate_section(aggregates: Mapping[str, Mapping[str, Mapping[str, Estimate]]]) -> Section:
    """IQM, median, mean, optimality gap: each suite beside the others."""
    panels = [
        Dots(
            f"{name}, {suite}" + (", less is better" if name == "optimality gap" else ""),
            NORMALISED,
            tuple(Dot(method, method, *estimate) for method, estimate in by_name[name].items()),
        )
        for name in dict.fromkeys(name for by_name in aggregates.values() for name in by_name)
        for suite, by_name in aggregates.items()
    ]
    text = (
        "Over the tasks of a suite, with rliable's 95% stratified bootstrap intervals. These are too short at 5 seeds: "
        "the verdict does not come from them. A table below says what counts as 0 and as 1 on each task."
    )
    return Section("aggregates", "Aggregates", text, tuple(panels))


def profile_section(normal: Mapping[str, Mapping[str, np.ndarray]]) -> Section:
    """The share of runs above each score, in each suite."""
    panels = []
    for suite, here in normal.items():
        pooled = np.concatenate([values.ravel() for values in here.values()])
        thresholds = np.linspace(min(0.0, pooled.min()), max(1.0, pooled.max()), 61)
        curves = [
            Curve(method, thresholds, share, low_high[0], low_high[1], f"{here[method].size} runs")
            for method, (share, low_high) in profiles(here, thresholds).items()
        ]
        panels.append(Lines(suite, NORMALISED, "share of runs above it", tuple(curves)))
    text = (
        "The share of runs on all tasks of a suite whose normalised score is above each, with 95% bootstrap intervals "
        "(rliable)."
    )
    return Section("profiles", "Performance profiles", text, tuple(panels))


def improvement_section(improvements: Mapping[str, Mapping[tuple[str, str], Estimate]]) -> Section:
    """How often a run of one is better than a run of the other, in each suite."""
    panels = []
    for suite, by_pair in improvements.items():
        dots = [Dot(f"{method} > {baseline}", method, *estimate) for (method, baseline), estimate in by_pair.items()]
        if dots:
            panels.append(Dots(suite, "probability", tuple(dots), 0.5, span=(-0.03, 1.03)))
    text = (
        "The probability that a run of the first scores above a run of the second on the same task, mean over the "
        "tasks of a suite, with 95% bootstrap intervals (rliable)."
    )
    return Section("improvement", "Probability of improvement", text, tuple(panels))


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
    """Every measure of plasticity over training, for each task and network, on each batch that it was measured on."""
    text = (
        "Whether the network can still learn, over training; docs/plasticity.md says what each measure means. " + SPREAD
    )
    names: set[str] = set()
    for task in tasks_of(records):
        here = [record for record in records if record.task == task]
        measured = {name.split("/")[1] for record in here for name in record.series if name.count("/") == 2}
        networks = sorted(measured, key=lambda name: (name == "actor", name))
        for network in networks:
            lines = [
                Lines(f"{measure}, {batch}", "step", label, curves)
                for measure, label in MEASURES.items()
                for where, batch in words.BATCHES.items()
                if (curves := _curves(here, methods, f"{where}/{network}/{measure}"))
            ]
            if lines:
                name = _file_name(f"plasticity-{task}-{network}", names)
                yield Section(name, f"Plasticity: {task}, {network}", text, tuple(lines), folded=len(names) > 1)


def _file_name(text: str, taken: set[str]) -> str:
    """A name for files from any text: plain letters, short, and none of those that are taken, which it then joins."""
    name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", text.replace(",", ""))[:100]
    if name.lower() in taken:
        name = f"{name}-{len(taken)}"
    taken.add(name.lower())
    return name


def age_section(records: Sequence[Record], methods: Sequence[str]) -> Section:
    """How old what is replayed is."""
    panels = []
    for task in tasks_of(records):
        here = [record for record in records if record.task == task]
        if curves := _curves(here, methods, "age_mean"):
            panels.append(Lines(task, "step", "mean age, in transitions", curves))
    return Section("ages", "Sampled ages", "The mean age of what was replayed. " + SPREAD, tuple(panels))


def drift_section(records: Sequence[Record], methods: Sequence[str]) -> Section:
    """How far what was done at each age is from what would be done now, late in the runs."""
    panels = []
    for task in tasks_of(records):
        curves = []
        for method in methods:
            mine = [record for record in records if (record.task, record.method) == (task, method)]
            measured = [late_curve({name: values for name, (_, values) in record.series.items()}) for record in mine]
            if known := [one for one in measured if one is not None]:
                means = np.array([one.means for one in known])
                middle, spread = means.mean(axis=0), means.std(axis=0, ddof=1) if len(known) > 1 else 0.0
                ages = np.mean([one.ages for one in known], axis=0)
                curves.append(Curve(method, ages, middle, middle - spread, middle + spread, counted(len(known), "run")))
        if curves:
            panels.append(Lines(task, "age, in transitions", "drift", tuple(curves), log=True))
    text = (
        "How far what was done at each age is from what the agent would do now, over the last quarter of a run's "
        "measurements; docs/plasticity.md says in which units. " + SPREAD
    )
    return Section("drift", "Drift over age", text, tuple(panels))
