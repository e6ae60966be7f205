"""``neoteny claims``: every claim of the paper, and what is known of it here so far."""

from __future__ import annotations

from pathlib import Path

from neoteny.experiments.plan import Plan, load_plan, papers_plans, scales_of
from neoteny.experiments.reporting import about, findings
from neoteny.experiments.work import is_done
from neoteny.report import words


def describe(out: Path) -> str:
    """A line or two for each plan: what the paper says, and how many of its runs are done."""
    lines = []
    for name in papers_plans():
        plans = [load_plan(name, scale) for scale in scales_of(name)]
        counts = [
            f"{sum(is_done(out / run.directory) for run in plan.runs)} of {len(plan.runs)} at {plan.scale} scale"
            for plan in plans
        ]
        lines.append(f"{name:<18}{plans[0].title}")
        known = [text for plan in plans for text in _verdicts(plan, out)]
        lines += [f"{'':<18}{text}" for text in (f"paper: {plans[0].paper}", f"runs done: {', '.join(counts)}", *known)]
    lines.append(f"\nOne command each: neoteny reproduce NAME [--scale laptop]. Runs are looked for in {out}.")
    return "\n".join(lines)


def _verdicts(plan: Plan, out: Path) -> list[str]:
    """A line for each claim of which there are runs."""
    if not any(is_done(out / run.directory) for run in plan.runs):
        return []
    return [
        f"{words.outcome(finding, about(plan))}: {words.comparison(finding)}, {words.percent(finding.test.gain)} "
        f"({words.evidence(finding)})"
        for finding in findings(plan, out)
        if finding.test is not None
    ]
