"""``neoteny diagnose``: how plasticity moved over a run, and what may be said of it.

A run is called lost only by a measure that seldom calls a healthy run lost, by the table of `neoteny lab alarms`; never
if its returns rise; and not while its values diverge, which is another trouble.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.measuring import alarms
from neoteny.plasticity.drift import Curve, age_ranges, late_curve
from neoteny.plasticity.verdict import RULES, Alarms, Observation, Values, judge, rising, values_of
from neoteny.runs.records import CONFIG, read_config, read_metrics, runs_in
from neoteny.wording import counted

OTHER_CAUSES = (
    "Other usual causes of a stall: too little exploration, a learning rate too high or too low, a task that is solved "
    "or that changed, and a replay that is too small or too old."
)
NO_TABLE = (
    "Nothing is judged: until there is a table of false alarms and misses (neoteny lab alarms makes it), these are "
    "numbers."
)
WHERE = ("probe", "batch", "replay")
"""What measures are on, the first that has one."""
Line = dict[str, Any]
"""Of metrics."""


def runs_at(paths: Iterable[Path]) -> list[Path]:
    """The runs at these paths, or inside them."""
    runs: list[Path] = []
    for path in paths:
        inside = sorted({*runs_in(path), *(log.parent for log in path.rglob("metrics.jsonl"))})
        if not inside:
            raise UsageError(f"{path} is not a run, nor is a run inside it: a run is a directory with metrics.jsonl")
        runs += inside
    return runs


def measured(runs: Iterable[Path], later: Mapping[Path, Sequence[Line]] | None = None) -> tuple[list[Path], list[str]]:
    """Those runs that were measured often enough; and of the others, why not. later: as for `describe`, by run."""
    good: list[Path] = []
    bad: list[str] = []
    for run in runs:
        if (count := len(_probes(run, (later or {}).get(run, ())))) >= 2:
            good.append(run)
        else:
            bad.append(
                f"{run} has {counted(count, 'measurement')} of plasticity and at least 2 are needed: train it for "
                "longer, or with a smaller --probe-every"
            )
    if not good:
        raise UsageError(bad[0] if len(bad) == 1 else f"none of {len(bad)} runs can be diagnosed: {bad[0]}")
    return good, bad


def findings(directory: Path, later: Sequence[Line] = ()) -> dict[str, list[Observation]]:
    """What each measure shows of each network of a run. later: as for `describe`."""
    lines = _probes(directory, later)
    networks = sorted({name.split("/")[1] for line in lines for name in line if name.startswith(("probe/", "replay/"))})
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


def series(lines: Sequence[Line], network: str, measure: str) -> list[float | None]:
    """A measure over training: on the fixed batch, or for what needs other data on the training batch or the replay."""
    names = [f"{where}/{network}/{measure}" for where in WHERE]
    return [next((line[name] for name in names if name in line), None) for line in lines]


def describe(directory: Path, later: Sequence[Line] = (), table: Mapping[str, Alarms] | None = None) -> str:
    """The table, and what may be said of it.

    Args:
        directory: of the run.
        later: lines of measurements that were made after the fact, from its checkpoints.
        table: how often each measure is wrong; if not given, the committed one.
    """
    table = alarms.committed() if table is None else table
    by_network, learning, sizes = findings(directory, later), rising(returns_of(directory)), values_in(directory)
    lines = [f"{directory}: plasticity, at first and over the last quarter of the run"]
    for network, said in by_network.items():
        lines.append(f"\n  {network:<10}{'measure':<22}{'first':>10}{'late':>10}   short runs that learned well")
        for finding in said:
            mark = "beyond" if _judges(finding, table) and finding.outside and not learning else ""
            numbers = f"{finding.first:>10.3g}{finding.late:>10.3g}"
            lines.append(f"  {mark:<10}{finding.rule.measure:<22}{numbers}   {finding.rule.healthy}")
    lines += _twin_table(later)
    lines += _drift_table(directory)
    words = verdict(by_network, learning, table, sizes)
    return "\n".join([*lines, "", *words, *([] if learning else [OTHER_CAUSES])])


def values_in(directory: Path) -> Values | None:
    """How large a run's values are, late, beside what its returns allow; None if it does not tell."""
    lines = read_metrics(directory)
    told = [line for line in lines if "q_max" in line and "target_abs" in line]
    episodes = [line for line in lines if line.get("episode_return") is not None]
    returns = [line[name] for name in ("episode_return", "eval_return") for line in lines if line.get(name) is not None]
    lengths = [line["episode_length"] for line in episodes if line.get("episode_length")]
    gamma = read_config(directory)[0].agent.gamma if (directory / CONFIG).exists() else 0.99
    return values_of(
        [line["q_max"] for line in told],
        [line["target_abs"] for line in told],
        returns,
        sum(lengths) / len(lengths) if lengths else 1.0,
        gamma,
    )


def _twin_table(later: Sequence[Line]) -> list[str]:
    """What was measured after the fact, at each checkpoint."""
    if not later:
        return []
    rows = ["\n  fresh-twin gap at each checkpoint: the loss of the present network over that of a new one"]
    rows.append(f"  {'step':>12}  {'network':<10}{'gap':>10}{'present':>12}{'new':>12}")
    for line in later:
        for name in sorted(name for name in line if name.endswith("/fresh_twin_gap")):
            network = name.split("/")[1]
            numbers = [line[f"replay/{network}/fresh_twin_{part}"] for part in ("gap", "loss", "new_loss")]
            cells = f"{numbers[0]:>10.3g}{numbers[1]:>12.4g}{numbers[2]:>12.4g}"
            rows.append(f"  {line['step']:>12,}  {network:<10}{cells}")
    return rows


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


def verdict(
    by_network: Mapping[str, list[Observation]],
    learning: bool | None,
    table: Mapping[str, Alarms],
    sizes: Values | None,
) -> list[str]:
    """What may be said of a run, in sentences.

    Args:
        by_network: what each measure shows of each network.
        learning: whether the returns are rising, if that is known.
        table: how often each measure is wrong.
        sizes: of the values, if they are known.
    """
    said = [_of_returns(learning)]
    if sizes is not None:
        said.append(_of_values(sizes))
    if learning:
        return said
    if sizes is not None and sizes.diverge:
        return [*said, "While values diverge the measures are not judged."]
    judging = {network: [f for f in own if _judges(f, table)] for network, own in by_network.items()}
    if not any(judging.values()):
        wrong = "Nothing is judged: every measure calls more than 1 in 20 healthy runs lost, or finds no damaged one."
        return [*said, wrong if table else NO_TABLE]
    for network, own in judging.items():
        beyond = [f for f in own if f.outside]
        said += [f"The {network} lost plasticity by {_evidence(f, table[f.rule.measure])}." for f in beyond]
        if own and not beyond:
            names = ", ".join(f.rule.measure for f in own)
            said.append(f"The {network} is within the bound of every measure that may call a run lost: {names}.")
    return said


def _judges(finding: Observation, table: Mapping[str, Alarms]) -> bool:
    """Whether the measure of a finding may call a run lost."""
    known = table.get(finding.rule.measure)
    return known is not None and known.may_judge(finding.rule)


def _evidence(finding: Observation, known: Alarms) -> str:
    """A measure beyond its bound, and how often it is wrong."""
    return (
        f"{finding.rule.measure} {finding.late:.3g} ({finding.rule.describe()} from step {finding.since:,}), which "
        f"called {known.false_alarms} of {known.healthy} healthy runs lost and missed {known.misses} of "
        f"{known.damaged} damaged ones"
    )


def _of_returns(learning: bool | None) -> str:
    if learning is None:
        return "There are too few returns to tell if they rise."
    return "The returns are rising: the run is not lost." if learning else "The returns are not rising."


def _of_values(sizes: Values) -> str:
    """Whether values diverge, in one sentence with the numbers."""
    numbers = f"the largest |Q| of a batch is {sizes.q_max:.3g} and the mean |target| {sizes.target_abs:.3g}"
    returns = f"the largest return of an episode {sizes.largest:.3g} in size, which allows values up to"
    if sizes.diverge:
        return (
            f"The values diverge, which is not by itself lost plasticity: over the last quarter {numbers}, and "
            f"{returns} {sizes.allowed:.3g}."
        )
    return f"The values do not diverge: over the last quarter {numbers}, and {returns} {sizes.allowed:.3g}."


def draw(directories: list[Path], picture: Path, later: Mapping[Path, Sequence[Line]] | None = None) -> None:
    """Every measure over training, a panel each, a line for each network of each run; and drift over age, of each run
    in which it was measured. later: as for `describe`, by run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 12), layout="constrained")
    panels = figure.subplots(4, 3).ravel()
    for panel, rule in zip(panels, RULES, strict=False):
        for directory in directories:
            lines = _probes(directory, (later or {}).get(directory, ()))
            for network in findings(directory, (later or {}).get(directory, ())):
                values = series(lines, network, rule.measure)
                known = [(line["step"], value) for line, value in zip(lines, values, strict=True) if value is not None]
                panel.plot(*zip(*known, strict=True) if known else ((), ()), label=f"{directory.name} {network}")
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


def _probes(directory: Path, later: Sequence[Line] = ()) -> list[Line]:
    """The lines with measures of plasticity, those made after the fact among them, in the order of their steps."""
    logged = [line for line in read_metrics(directory) if any(name.startswith(("probe/", "replay/")) for name in line)]
    return sorted([*logged, *later], key=lambda line: line["step"])
