"""Everything that a report says, from records of runs and the claims to be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from neoteny.report import statistics
from neoteny.report.scores import Record, Scores, scores_of
from neoteny.report.sections import (
    age_section,
    aggregate_section,
    curve_section,
    difference_section,
    improvement_section,
    plasticity_sections,
    profile_section,
    runtime_section,
)
from neoteny.report.shapes import Section
from neoteny.report.statistics import Bounds
from neoteny.report.verdict import Claim, Finding, judge


@dataclass(frozen=True)
class About:
    """What the runs were for; it is written on every figure."""

    title: str = "Report"
    name: str = ""
    scale: str = ""
    paper: str = ""
    reduced: str = ""
    speaks: bool = True
    """Whether these runs can say anything of the paper."""
    planned: Mapping[str, int] | None = None
    """How many runs each method should have."""
    note: str = ""
    """What to write on figures where there is no plan."""

    @property
    def footnote(self) -> str:
        """The scale and what was reduced."""
        if not self.scale:
            return self.note or "Runs without a plan, at no scale of the paper's."
        if not self.paper:
            return f"{self.name}, at the scale of its plan; the paper says nothing of it."
        reduced = f" Reduced: {self.reduced}." if self.reduced else " Nothing reduced."
        return f"{self.name}, {self.scale} scale.{reduced}"


@dataclass(frozen=True, eq=False)
class Report:
    """All that is shown."""

    about: About
    records: Sequence[Record]
    methods: tuple[str, ...]
    scores: Scores
    findings: tuple[Finding, ...]
    bounds: Mapping[str, Bounds]
    aggregates: Mapping[str, Mapping[str, statistics.Estimate]]
    sections: tuple[Section, ...]
    notes: tuple[str, ...]


def default_claims(methods: Sequence[str], paper: str = "") -> tuple[Claim, ...]:
    """Every method against uniform replay; against the first, if there is none."""
    baseline = baseline_of(methods)
    return tuple(Claim(method, baseline, paper=paper) for method in methods if method != baseline)


def baseline_of(methods: Sequence[str]) -> str:
    """The method that others are compared with: the shortest name with uniform in it, or the first."""
    return min((name for name in methods if "uniform" in name), key=len, default=methods[0] if methods else "")


def findings_of(records: Sequence[Record], claims: Sequence[Claim], about: About) -> tuple[Finding, ...]:
    """A verdict on each claim."""
    by_measure = {measure: scores_of(records, measure) for measure in {claim.measure for claim in claims}}
    return tuple(judge(claim, by_measure[claim.measure], about.speaks, about.planned) for claim in claims)


def gather(records: Sequence[Record], about: About, claims: Sequence[Claim] | None = None) -> Report:
    """Judge the claims, or without any every method against uniform replay, and make every section."""
    methods = tuple(dict.fromkeys(record.method for record in records))
    if claims is None:
        methods = tuple(sorted(methods, key=lambda name: (name != baseline_of(methods), name)))
        claims = default_claims(methods)
    findings = findings_of(records, claims, about)
    scores = scores_of(records)
    bounds = statistics.bounds_of(scores)
    normal = statistics.matrices({name: scores[name] for name in methods if name in scores}, bounds)
    aggregates = statistics.aggregates(normal) if normal else {}
    top = max((float(values.max()) for values in normal.values()), default=1.0)
    bottom = min((float(values.min()) for values in normal.values()), default=0.0)
    thresholds = np.linspace(min(0.0, bottom), max(1.0, top), 61)
    profiles = statistics.profiles(normal, thresholds) if normal else {}
    pairs = list(dict.fromkeys((claim.method, claim.baseline) for claim in claims))
    improvements = statistics.improvement(normal, pairs) if normal else {}
    sections = (
        difference_section(findings),
        curve_section(records, methods),
        aggregate_section(aggregates),
        profile_section(profiles, thresholds, normal),
        improvement_section(improvements),
        runtime_section(records, methods),
        *plasticity_sections(records, methods),
        age_section(records, methods),
    )
    kept = tuple(section for section in sections if section.panels)
    notes = tuple(_notes(records, scores, normal, bounds))
    return Report(about, records, methods, scores, findings, bounds, aggregates, kept, notes)


def _notes(
    records: Sequence[Record], scores: Scores, normal: Mapping[str, np.ndarray], bounds: Mapping[str, Bounds]
) -> list[str]:
    """What a reader must know of these runs."""
    notes = []
    if unfinished := sum(not record.done for record in records):
        notes.append(f"Not finished: {unfinished} of {len(records)} runs. They are in the curves, and have no score.")
    if training := sum(not record.evaluated for record in records):
        notes.append(
            f"Not evaluated: {training} of {len(records)} runs. Their training episodes stand for evaluations."
        )
    for method, by_task in scores.items():
        counts = {task: len(values) for task, values in by_task.items()}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{task} {count}" for task, count in counts.items())
            notes.append(
                f"{method} has unequal numbers of runs ({listed}): aggregates take the first {min(counts.values())} of "
                "each task, the verdict takes all."
            )
        if method not in normal:
            lacking = ", ".join(task for task in bounds if task not in by_task)
            notes.append(f"{method} has no finished run on {lacking}: it is left out of aggregates over tasks.")
    return notes
