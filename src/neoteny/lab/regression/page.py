"""The table, the verdicts in words and the picture of ``neoteny lab regression``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neoteny.lab.regression.experiment import EARLY, MOMENTS, PARTS, Outcome, Scale
from neoteny.lab.regression.stream import World
from neoteny.report.about import About
from neoteny.report.verdict import Finding
from neoteny.report.words import sentence
from neoteny.wording import counted

Outcomes = dict[tuple[World, str], Outcome]
NOTHING = "This scale decides nothing: it shows only that the experiment runs."
STYLES = {
    "uniform": ("#777777", "o"),
    "uniform, equal age": ("#000000", "v"),
    "uniform, bounded": ("#CC79A7", "D"),
    "swd": ("#0072B2", "s"),
    "swd, bounded": ("#56B4E9", "P"),
    "swd, auto T": ("#009E73", "^"),
    "truncated geometric, equal age": ("#D55E00", "X"),
}
"""Okabe and Ito's colours, and marks that differ without."""


def markdown(outcomes: Outcomes, found: Sequence[Finding], scale: Scale, decides: bool) -> str:
    """Return a table for each world, and a sentence for each comparison."""
    lines = [
        f"{counted(scale.examples, 'example')}, {counted(scale.seeds, 'seed')}, a flip every {scale.every:,} examples. "
        "The mean over seeds, with the least and the most. An error of 1 is the variance of the target over random "
        f"inputs. The fresh gap is after {scale.every:,} updates; above 1, new networks learn the buffer better. "
        f"The share is that of the newest {scale.newest:,} examples in the gradient at the end of the stream, beside "
        "their share of the draws in closed form; the power is that of k with which it falls.",
        "",
    ]
    if not decides:
        lines += [NOTHING, ""]
    for world in dict.fromkeys(world for world, _ in outcomes):
        lines += [
            f"### {world.capitalize()}",
            "",
            f"| replay | error, last tenth | gap after {EARLY:.0%} | gap at the end | share | of draws | power |",
            "|---|---|---|---|---|---|---|",
        ]
        for (where, arm), outcome in outcomes.items():
            if where == world:
                lines.append(f"| {arm} | {' | '.join(_cells(outcome))} |")
        lines.append("")
        lines += [f"- {sentence(finding, About())}" for finding in found if _world(finding) == world]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def draw(figure: Any, outcomes: Outcomes, scale: Scale, decides: bool) -> None:
    """Draw for each world the online error, the fresh gap and the newest's share of the gradient."""
    worlds = list(dict.fromkeys(world for world, _ in outcomes))
    rows = figure.subplots(len(worlds), 3, squeeze=False)
    at = np.array(MOMENTS) * scale.examples
    for world, panels in zip(worlds, rows, strict=True):
        error, gap, share = panels
        for (where, arm), outcome in outcomes.items():
            if where != world:
                continue
            colour, mark = STYLES[arm]
            smooth = outcome.errors.mean(axis=0).reshape(-1, 5).mean(axis=1)
            ends = np.arange(5, PARTS + 1, 5) * scale.every
            error.plot(ends, smooth, color=colour, marker=mark, markersize=3, label=arm)
            gap.plot(at, outcome.gaps.mean(axis=0), color=colour, marker=mark, markersize=4)
            share.plot(at, outcome.expected, color=colour, linewidth=1)
            share.plot(at, outcome.shares.mean(axis=0), mark, color=colour, markersize=5)
        error.set(title=f"{world}: online error", xlabel="examples", ylabel="squared error before it is stored")
        gap.axhline(1, color="black", linewidth=1)
        gap.set(title="fresh gap", xscale="log", xlabel="examples", ylabel="loss / that of new networks")
        share.set(xscale="log", yscale="log", xlabel="examples, k", title="gradient share of the newest")
        share.set_ylabel(f"newest {scale.newest:,}; lines: share of draws")
        for panel in panels:
            panel.grid(alpha=0.25)
    rows[0][0].legend(fontsize=7)
    note = f"{counted(scale.seeds, 'seed')}, means. " + ("" if decides else NOTHING)
    figure.supxlabel(note, fontsize=8, x=0.02, ha="left")


def _cells(outcome: Outcome) -> list[str]:
    """What a row says of an arm."""
    early = outcome.gaps[:, MOMENTS.index(EARLY)]
    spread = [
        f"{one.mean():.3f} ({one.min():.3f} to {one.max():.3f})" for one in (outcome.late, early, outcome.gaps[:, -1])
    ]
    shares = [f"{value:.3%}" for value in (outcome.shares[:, -1].mean(), outcome.expected[-1])]
    return [*spread, *shares, f"{outcome.slope:.2f}"]


def _world(finding: Finding) -> str:
    return finding.claim.measure.partition("/")[0]
