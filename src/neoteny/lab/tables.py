"""The table of `neoteny lab alarms`: which measures called which runs lost, counted and written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neoteny.measuring.alarms import as_json
from neoteny.measuring.diagnose import returns_of
from neoteny.plasticity.verdict import LATE, RULES, Alarms, Observation, Rule
from neoteny.runs.run import source

KINDS = {"healthy": "healthy", "primed": "primed", "dormant": "units silenced"}
"""Of cases, and what the page calls them."""


@dataclass(frozen=True)
class Case:
    """One run, or one that was silenced at its end."""

    kind: str
    task: str
    seed: int
    late: dict[str, float]
    """Of each measure its late value, over the first where its bound is; of several networks the nearest to alarm."""
    alarms: dict[str, bool]
    """Whether it is beyond its bound, of any network."""
    late_return: float | None
    """The mean return over the last quarter of evaluations; of one that was silenced, which is not evaluated, None."""


def case_of(
    kind: str, task: str, seed: int, by_network: Mapping[str, Sequence[Observation]], late_return: float | None
) -> Case:
    """A case from what each measure shows of each of its networks."""
    late: dict[str, float] = {}
    alarms: dict[str, bool] = {}
    for said in (one for own in by_network.values() for one in own):
        name, rule = said.rule.measure, said.rule
        value = said.late / said.first if rule.relative and said.first != 0 else said.late
        worst = max if rule.above else min
        late[name] = worst(late.get(name, value), value)
        alarms[name] = alarms.get(name, False) or said.outside
    return Case(kind, task, seed, late, alarms, late_return)


def late_return(run: Path) -> float:
    """The mean return over the last quarter of a run's evaluations."""
    returns = returns_of(run)
    return float(np.mean(returns[-max(1, round(len(returns) * LATE)) :]))


def is_damaged(case: Case, cases: Sequence[Case]) -> bool:
    """Whether a case counts as damaged: a primed run only if it stayed below every healthy one of its task."""
    if case.kind != "primed":
        return case.kind == "dormant"
    healthy = [one.late_return for one in cases if one.kind == "healthy" and one.task == case.task]
    return case.late_return is not None and all(own is not None and case.late_return < own for own in healthy)


def counted_alarms(rule: Rule, cases: Sequence[Case]) -> Alarms:
    """How often a measure is wrong at its bound; cases in which it was not measured do not count."""
    known = [case for case in cases if rule.measure in case.alarms]
    healthy = [case.alarms[rule.measure] for case in known if case.kind == "healthy"]
    damaged = [case.alarms[rule.measure] for case in known if is_damaged(case, cases)]
    return Alarms(rule.measure, rule.bound, len(healthy), sum(healthy), len(damaged), damaged.count(False))


def table(cases: Sequence[Case], decides: bool, command: str) -> dict[str, Any]:
    """The table as JSON, with every case that it is from."""
    counts = [counted_alarms(rule, cases) for rule in RULES]
    more = {rule.measure: _of_kinds(rule, cases) for rule in RULES}
    made_by = {"command": command, **source()}
    runs = [{**asdict(case), "damaged": is_damaged(case, cases)} for case in cases]
    return {"decides": decides, "made_by": made_by, "measures": as_json(counts, more), "cases": runs}


def _of_kinds(rule: Rule, cases: Sequence[Case]) -> dict[str, Any]:
    """Of each kind of case the least and the most late value; and the misses among each kind of damaged ones."""
    more: dict[str, Any] = {"is_lost_if": rule.describe()}
    for kind in KINDS:
        known = [case for case in cases if case.kind == kind and rule.measure in case.late]
        values = [case.late[rule.measure] for case in known]
        more[f"{kind}_late"] = [min(values), max(values)] if values else None
        damaged = [case.alarms[rule.measure] for case in known if is_damaged(case, cases)]
        if kind != "healthy":
            more[f"{kind}_missed"] = [damaged.count(False), len(damaged)]
    return more


def markdown(cases: Sequence[Case], rows: Mapping[str, Any]) -> str:
    """The table as a page, with every run's returns."""
    primed = [case for case in cases if case.kind == "primed"]
    damaged = sum(is_damaged(case, cases) for case in primed)
    lines = [
        "# False alarms and misses of each measure of plasticity",
        "",
        f"Made by `{rows['made_by']['command']}`, commit {rows['made_by']['commit']}."
        + ("" if rows["decides"] else " At this scale it decides nothing."),
        f"Of {len(primed)} primed runs {damaged} stayed below every healthy run of their task, and count as damaged.",
        "",
        "| measure | lost if | false alarms | missed primed | missed silenced | healthy late | primed late "
        "| silenced late | may judge |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for rule in RULES:
        row = rows["measures"][rule.measure]
        counts = counted_alarms(rule, cases)
        cells = [
            rule.measure,
            row["is_lost_if"],
            f"{counts.false_alarms} of {counts.healthy}",
            *("{} of {}".format(*row[f"{kind}_missed"]) for kind in ("primed", "dormant")),
            *(_range(row[f"{kind}_late"]) for kind in KINDS),
            "yes" if rows["decides"] and counts.may_judge(rule) else "no",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| task | kind | seed | late return | damaged | called lost by |", "|---|---|---|---|---|---|"]
    for case in sorted(cases, key=lambda case: (case.task, list(KINDS).index(case.kind), case.seed)):
        called = ", ".join(name for name, alarm in case.alarms.items() if alarm) or "none"
        returned = "" if case.late_return is None else f"{case.late_return:.1f}"
        cells = [case.task, KINDS[case.kind], str(case.seed), returned, _yes(is_damaged(case, cases)), called]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _range(values: Sequence[float] | None) -> str:
    return "" if values is None else f"{values[0]:.3g} to {values[1]:.3g}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
