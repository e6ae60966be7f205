"""Everything that a report says, from records of runs and the claims to be judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neoteny.report import statistics
from neoteny.report.about import About
from neoteny.report.scores import LARGEST, Record, Scores, full_measure, left_out, scores_of
from neoteny.report.sections import (
    age_section,
    aggregate_section,
    curve_section,
    difference_section,
    drift_section,
    improvement_section,
    plasticity_sections,
    profile_section,
    runtime_section,
)
from neoteny.report.shapes import Section
from neoteny.report.suites import Bounds, bounds_of, by_suite
from neoteny.report.verdict import Claim, Finding, judge, without
from neoteny.settings.presets import NAMES
from neoteny.wording import counted


@dataclass(frozen=True, eq=False)
class Report:
    """All that is shown."""

    about: About
    records: Sequence[Record]
    methods: tuple[str, ...]
    scores: Scores
    findings: tuple[Finding, ...]
    bounds: Mapping[str, Bounds]
    aggregates: Mapping[str, Mapping[str, Mapping[str, statistics.Estimate]]]
    """Of each suite, by name and method."""
    sections: tuple[Section, ...]
    notes: tuple[str, ...]


def default_claims(methods: Sequence[str], paper: str = "") -> tuple[Claim, ...]:
    """Every method against uniform replay, of the same agent where names begin with one; else against the first."""
    groups: dict[str, list[str]] = {}
    for method in methods:
        agent = method.split("-")[0]
        groups.setdefault(agent if agent in NAMES else "", []).append(method)
    pairs = [(method, baseline_of(group)) for group in groups.values() for method in group]
    return tuple(Claim(method, baseline, paper=paper) for method, baseline in pairs if method != baseline)


def baseline_of(methods: Sequence[str]) -> str:
    """The method that others are compared with: the shortest name with uniform in it, or the first."""
    return min((name for name in methods if "uniform" in name), key=len, default=methods[0] if methods else "")


def findings_of(records: Sequence[Record], claims: Sequence[Claim], about: About) -> tuple[Finding, ...]:
    """A verdict on each claim, whose measure then names its batch."""
    claims = [replace(claim, measure=full_measure(records, claim.measure)) for claim in claims]
    by_measure = {
        measure: (scores_of(records, measure), left_out(records, measure))
        for measure in {claim.measure for claim in claims}
    }
    return tuple(
        judge(claim, scores, about.speaks, about.planned, lost)
        for claim in claims
        for scores, lost in [by_measure[claim.measure]]
    )


def gather(records: Sequence[Record], about: About, claims: Sequence[Claim] | None = None) -> Report:
    """Judge the claims, or without any every method against uniform replay, and make every section."""
    methods = tuple(dict.fromkeys(record.method for record in records))
    if claims is None:
        methods = tuple(sorted(methods, key=lambda name: (name != baseline_of(methods), name)))
        claims = default_claims(methods)
    findings = findings_of(records, claims, about)
    scores = scores_of(records)
    bounds = bounds_of(scores)
    pairs = list(dict.fromkeys((claim.method, claim.baseline) for claim in claims))
    normal = {}
    for suite, tasks in by_suite(list(bounds)).items():
        mine = {name: scores[name] for name in methods if name in scores}
        if matrices := statistics.matrices(mine, {task: bounds[task] for task in tasks}):
            normal[suite] = matrices
    aggregates = {suite: statistics.aggregates(here) for suite, here in normal.items()}
    improvements = {suite: statistics.improvement(here, pairs) for suite, here in normal.items()}
    sections = (
        difference_section(findings),
        curve_section(records, methods),
        aggregate_section(aggregates),
        profile_section(normal),
        improvement_section(improvements),
        runtime_section(records, methods),
        *plasticity_sections(records, methods),
        age_section(records, methods),
        drift_section(records, methods),
    )
    kept = tuple(section for section in sections if section.panels)
    notes = tuple(_notes(records, scores, bounds))
    return Report(about, records, methods, scores, findings, bounds, aggregates, kept, notes)


def _notes(records: Sequence[Record], scores: Scores, bounds: Mapping[str, Bounds]) -> list[str]:
    """What a reader must know of these runs."""
    notes = []
    if unfinished := sum(not record.done for record in records):
        notes.append(f"Not finished: {unfinished} of {len(records)} runs. They are in the curves, and have no score.")
    versions = sorted({record.made_by for record in records if record.made_by})
    if len(versions) > 1:
        notes.append(f"These runs were made by {len(versions)} versions of neoteny: {', '.join(versions)}.")
    if strange := [record for record in records if record.not_finite]:
        notes.append(
            f"NaN, infinity or a number beyond {LARGEST:.0e} was returned in "
            f"{counted(sum(record.not_finite for record in strange), 'evaluation')} of "
            f"{counted(len(strange), 'run')}, which the curves leave out: look at the environment, and at neoteny "
            "inspect."
        )
    if lost := left_out(records):
        notes.append(f"{without([record.name for record in lost])} The table of runs names every one.")
    if training := sum(not record.evaluated for record in records):
        notes.append(
            f"Not evaluated: {training} of {len(records)} runs. Their training episodes stand for evaluations."
        )
    if untimed := sum(bool(record.length) and math.isnan(record.seconds) for record in records):
        notes.append(
            f"The timing of {counted(untimed, 'run')} is left out: timing.jsonl is missing, damaged, or was changed "
            "after the run finished."
        )
    if relative := [task for task, bound in bounds.items() if not bound.fixed]:
        notes.append(
            f"No fixed scale is known for {', '.join(relative)}: in aggregates, 0 and 1 are the lowest and the highest "
            "score of any run here. Those aggregates say which method is ahead, and not by how much."
        )
    for task in dict.fromkeys(record.task for record in records):
        lengths = sorted(
            {(record.length, record.method) for record in records if record.task == task and record.length}
        )
        if len({length for length, _ in lengths}) > 1:
            listed = ", ".join(f"{method} with {length:,} steps" for length, method in lengths)
            notes.append(
                f"Runs of different lengths are compared on {task}: {listed}. The longer ones learned for longer."
            )
    for suite, tasks in by_suite(list(bounds)).items():
        for method, by_task in scores.items():
            counts = {task: len(by_task[task]) for task in tasks if task in by_task}
            if len(set(counts.values())) > 1:
                listed = ", ".join(f"{task} {count}" for task, count in counts.items())
                notes.append(
                    f"{method} has unequal numbers of runs ({listed}): aggregates take the first "
                    f"{min(counts.values())} of each task, the verdict takes all."
                )
            if counts and (lacking := [task for task in tasks if task not in counts]):
                notes.append(
                    f"{method} has no finished run on {', '.join(lacking)}: it is left out of the aggregates "
                    f"over {suite}."
                )
    return notes
