"""``neoteny diagnose``: how plasticity moved over a run, and in words whether it was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.plasticity.verdict import RULES, Finding, judge, rules_of
from neoteny.training.run import read_metrics

OTHER_CAUSES = (
    "Other usual causes of a stall: too little exploration, a learning rate too high or too low, targets that diverge "
    "(look at q and critic_loss), a task that is solved or that changed, and a replay that is too small or too old."
)


def findings(directory: Path) -> dict[str, list[Finding]]:
    """What each measure says of each network of a run."""
    lines = [line for line in read_metrics(directory) if any(name.startswith("probe/") for name in line)]
    if len(lines) < 2:
        raise UsageError(
            f"{directory} has {len(lines)} measurements of plasticity and at least 2 are needed: train it for longer, "
            "or with a smaller --probe-every"
        )
    networks = sorted({name.split("/")[1] for name in lines[0] if name.startswith("probe/")})
    steps = [line["step"] for line in lines]
    found: dict[str, list[Finding]] = {}
    for network in networks:
        judged = [judge(rule, steps, series(lines, network, rule.measure)) for rule in rules_of(network)]
        found[network] = [finding for finding in judged if finding is not None]
    return found


def series(lines: list[dict[str, Any]], network: str, measure: str) -> list[float | None]:
    """A measure over training: on the fixed batch, or for what needs the newest data on the training batch."""
    return [line.get(f"probe/{network}/{measure}", line.get(f"batch/{network}/{measure}")) for line in lines]


def describe(directory: Path, found: dict[str, list[Finding]]) -> str:
    """The table and the verdict."""
    lines = [f"{directory}: plasticity, at first and over the last quarter of the run"]
    for network, said in found.items():
        lines.append(f"\n  {network:<10}{'measure':<22}{'first':>10}{'late':>10}   lost if        healthy runs")
        for finding in said:
            rule = finding.rule
            bound = f"{'>' if rule.above else '<'} {rule.threshold:g}{' x first' if rule.relative else ''}"
            mark = "LOST" if finding.lost else ""
            numbers = f"{finding.first:>10.3g}{finding.late:>10.3g}"
            lines.append(f"  {mark:<10}{rule.measure:<22}{numbers}   {bound:<14} {rule.healthy}")
    return "\n".join([*lines, "", verdict(found), OTHER_CAUSES])


def verdict(found: dict[str, list[Finding]]) -> str:
    """In words: whether plasticity was lost, by which measure, from which step."""
    said = []
    for network, all_of_it in found.items():
        lost = [finding for finding in all_of_it if finding.lost and finding.rule.decides]
        signs = [finding for finding in all_of_it if finding.lost and not finding.rule.decides]
        if lost:
            by = ", ".join(f"{f.rule.measure} {f.late:.3g} from step {f.since:,}" for f in lost)
            said.append(f"The {network} lost plasticity, by {by}.")
        else:
            said.append(f"The {network}: no loss of plasticity was found.")
        if signs:
            by = ", ".join(f"{f.rule.measure} {f.late:.3g} from step {f.since:,}" for f in signs)
            said.append(f"  Signs that alone do not decide: {by}.")
    return "\n".join(said)


def draw(directories: list[Path], picture: Path) -> None:
    """Every measure over training, a panel each, a line for each network of each run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 9), layout="constrained")
    panels = figure.subplots(3, 3).ravel()
    for panel, rule in zip(panels, RULES, strict=False):
        for directory in directories:
            lines = [line for line in read_metrics(directory) if any(name.startswith("probe/") for name in line)]
            for network in findings(directory):
                values = series(lines, network, rule.measure)
                panel.plot([line["step"] for line in lines], values, label=f"{directory.name} {network}")
        if not rule.relative:
            panel.axhline(rule.threshold, color="black", linestyle="--", linewidth=0.8)
        panel.set(title=rule.measure, xlabel="step")
        panel.grid(alpha=0.25)
    for panel in panels[len(RULES) :]:
        panel.set_axis_off()
    panels[0].legend(fontsize=7)
    figure.savefig(picture, dpi=110)
