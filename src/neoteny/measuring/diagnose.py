"""``neoteny diagnose``: how plasticity moved over a run, beside what short runs that learned well showed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.plasticity.drift import Curve, age_ranges, late_curve
from neoteny.plasticity.verdict import RULES, Observation, judge, rising
from neoteny.runs.records import read_metrics, runs_in
from neoteny.wording import counted

OTHER_CAUSES = (
    "Other usual causes of a stall: too little exploration, a learning rate too high or too low, targets that diverge "
    "(look at q and critic_loss), a task that is solved or that changed, and a replay that is too small or too old."
)


def measured(paths: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """The runs at these paths, or inside them, that were measured often enough; and of the others, why not."""
    good: list[Path] = []
    bad: list[str] = []
    for path in paths:
        inside = sorted({*runs_in(path), *(log.parent for log in path.rglob("metrics.jsonl"))})
        if not inside:
            raise UsageError(f"{path} is not a run, nor is a run inside it: a run is a directory with metrics.jsonl")
        for run in inside:
            if (count := len(_probes(run))) >= 2:
                good.append(run)
            else:
                bad.append(
                    f"{run} has {counted(count, 'measurement')} of plasticity and at least 2 are needed: train it for "
                    "longer, or with a smaller --probe-every"
                )
    if not good:
        raise UsageError(bad[0] if len(bad) == 1 else f"none of {len(bad)} runs can be diagnosed: {bad[0]}")
    return good, bad


def findings(directory: Path) -> dict[str, list[Observation]]:
    """What each measure shows of each network of a run."""
    lines = _probes(directory)
    networks = sorted({name.split("/")[1] for line in lines[:1] for name in line if name.startswith("probe/")})
    steps = [line["step"] for line in lines]
    by_network: dict[str, list[Observation]] = {}
    for network in networks:
        judged = [judge(rule, steps, series(lines, network, rule.measure)) for rule in RULES]
        by_network[network] = [finding for finding in judged if finding is not None]
    return by_network


def returns_of(directory: Path) -> list[float]:
    """The evaluations' returns, in order; where there are fewer than 3, those of the training episodes."""
    lines = read_metrics(directory)
    evaluated, trained = (
        [line[name] for line in lines if line.get(name) is not None] for name in ("eval_return", "episode_return")
    )
    return evaluated if len(evaluated) >= 3 else trained


def series(lines: list[dict[str, Any]], network: str, measure: str) -> list[float | None]:
    """A measure over training: on the fixed batch, or for what needs the newest data on the training batch."""
    return [line.get(f"probe/{network}/{measure}", line.get(f"batch/{network}/{measure}")) for line in lines]


def describe(directory: Path) -> str:
    """The table, and what stands out in it."""
    by_network, learning = findings(directory), rising(returns_of(directory))
    lines = [f"{directory}: plasticity, at first and over the last quarter of the run"]
    for network, said in by_network.items():
        lines.append(f"\n  {network:<10}{'measure':<22}{'first':>10}{'late':>10}   short runs that learned well")
        for finding in said:
            mark = "outside" if finding.outside and not learning else ""
            numbers = f"{finding.first:>10.3g}{finding.late:>10.3g}"
            lines.append(f"  {mark:<10}{finding.rule.measure:<22}{numbers}   {finding.rule.healthy}")
    lines += _drift_table(directory)
    return "\n".join([*lines, "", verdict(by_network, learning), *([] if learning else [OTHER_CAUSES])])


def drift_of(directory: Path) -> Curve | None:
    """The drift of each range of age over the last quarter of a run; None if it was not measured."""
    lines = _probes(directory)
    names = {name for line in lines for name in line if name.startswith("drift")}
    return late_curve({name: [line[name] for line in lines if name in line] for name in names})


def _drift_table(directory: Path) -> list[str]:
    curve = drift_of(directory)
    if curve is None:
        return []
    bounds = age_ranges(curve.num_stored)
    lines = ["\n  drift over the last quarter: how far what was done is from what would be done now"]
    lines.append(f"  {'age':<24}{'drift':>10}{'far off':>10}")
    for low, high, mean, far in zip(bounds[:-1], bounds[1:], curve.means, curve.far, strict=True):
        lines.append(f"  {f'{low + 1:,} to {high:,}':<24}{mean:>10.3g}{far:>10.0%}")
    return lines


def verdict(by_network: dict[str, list[Observation]], learning: bool | None) -> str:
    """In words: which measures left the range of short healthy runs, and from which step; none while it is learning.

    learning: whether the returns are rising, if that is known.
    """
    if learning:
        return "The returns are rising, so no measure is marked."
    said = []
    for network, all_of_it in by_network.items():
        outside = [f for f in all_of_it if f.outside]
        by = ", ".join(f"{f.rule.measure} {f.late:.3g} ({f.rule.describe()} from step {f.since:,})" for f in outside)
        if by:
            said.append(f"The {network} left what short runs that learned well showed: {by}.")
        else:
            said.append(f"The {network} stayed within what short runs that learned well showed.")
    known = "The returns are not rising." if learning is False else "There are too few returns to tell if they rise."
    caution = "These bounds are from runs of at most 120,000 steps: take them as observations, not as a verdict."
    return "\n".join([*said, f"{known} {caution}"])


def draw(directories: list[Path], picture: Path) -> None:
    """Every measure over training, a panel each, a line for each network of each run; and drift over age, of each run
    in which it was measured."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 9), layout="constrained")
    panels = figure.subplots(3, 3).ravel()
    for panel, rule in zip(panels, RULES, strict=False):
        for directory in directories:
            lines = _probes(directory)
            for network in findings(directory):
                values = series(lines, network, rule.measure)
                panel.plot([line["step"] for line in lines], values, label=f"{directory.name} {network}")
        if not rule.relative:
            panel.axhline(rule.bound, color="black", linestyle="--", linewidth=0.8)
        panel.set(title=rule.measure, xlabel="step")
        panel.grid(alpha=0.25)
    drifts = {directory.name: curve for directory in directories if (curve := drift_of(directory)) is not None}
    for name, curve in drifts.items():
        panels[len(RULES)].plot(curve.ages, curve.means, label=name)
    if drifts:
        panels[len(RULES)].set(title="drift, last quarter", xlabel="age, in transitions", xscale="log")
        panels[len(RULES)].grid(alpha=0.25)
    for panel in panels[len(RULES) + bool(drifts) :]:
        panel.set_axis_off()
    panels[0].legend(fontsize=7)
    figure.savefig(picture, dpi=110)


def _probes(directory: Path) -> list[dict[str, Any]]:
    return [line for line in read_metrics(directory) if any(name.startswith("probe/") for name in line)]
