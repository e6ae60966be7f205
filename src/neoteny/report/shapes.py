"""What a figure shows, as plain numbers: drawn by matplotlib into files and by Plotly on the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from neoteny.report.archive import Series
from neoteny.report.scores import finite

COLOURS = ("#7f7f7f", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
"""Told apart by the colour-blind (Okabe and Ito, grey for black), on white and on black."""
DASHES = ("solid", "dash", "dashdot", "longdash", "dot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x")
"""7 and 5 have no common factor, so that 35 methods differ in one or the other."""
BINS = 60
"""Of steps, where the runs of a method were not measured at the same ones."""


class Look(NamedTuple):
    """How a method is drawn, everywhere."""

    colour: str
    dash: str
    marker: str


@dataclass(frozen=True)
class Curve:
    """A mean over runs, and how far they spread around it."""

    method: str
    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    runs: str


@dataclass(frozen=True)
class Lines:
    """Curves over something."""

    title: str
    xlabel: str
    ylabel: str
    curves: tuple[Curve, ...]
    log: bool = False
    """Whether the lower axis is logarithmic."""


class Dot(NamedTuple):
    """A number with its interval; without one, both ends are the number."""

    label: str
    method: str
    value: float
    low: float
    high: float
    mark: float | None = None
    """Another number beside it, such as the paper's."""


@dataclass(frozen=True)
class Dots:
    """Numbers with intervals, one below the other."""

    title: str
    xlabel: str
    dots: tuple[Dot, ...]
    line: float | None = None
    """Where a line is drawn: no difference."""
    percent: bool = False
    span: tuple[float, float] | None = None
    """Of the axis, where it is known beforehand."""


@dataclass(frozen=True)
class Section:
    """Panels that belong together, and what they show."""

    name: str
    title: str
    text: str
    panels: tuple[Lines | Dots, ...]
    folded: bool = False
    """Whether the page shows it only when asked."""


def looks(methods: Sequence[str]) -> dict[str, Look]:
    """How each method is drawn."""
    return {
        method: Look(COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)])
        for i, method in enumerate(methods)
    }


def curve(method: str, runs: Sequence[Series]) -> Curve | None:
    """The mean of `runs` and one standard deviation around it, at each step over the runs that have a finite value."""
    runs = [(steps[finite(values)], values[finite(values)]) for steps, values in runs if finite(values).any()]
    if not runs:
        return None
    at = np.unique(np.concatenate([steps for steps, _ in runs]))
    if len(at) > max(len(np.unique(steps)) for steps, _ in runs) or len(at) > 5 * BINS:
        edges = np.linspace(at[0] - 1, at[-1], BINS + 1)
        at = edges[1:]
        table = np.array([_binned(steps, values, edges) for steps, values in runs])
    else:
        table = np.full((len(runs), len(at)), np.nan)
        for row, (steps, values) in zip(table, runs, strict=True):
            row[np.searchsorted(at, steps)] = values
    count = (~np.isnan(table)).sum(axis=0)
    at, table, count = at[count > 0], table[:, count > 0], count[count > 0]
    mean = np.nansum(table, axis=0) / count
    spread = np.sqrt(np.nansum((table - mean) ** 2, axis=0) / np.maximum(count - 1, 1))
    few, many = int(count.min()), int(count.max())
    number = f"{many}" if few == many else f"{few} to {many}"
    return Curve(method, at, mean, mean - spread, mean + spread, f"{number} run{'s' * (many > 1)}")


def _binned(steps: np.ndarray, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The mean of the values whose steps fall between each two edges; NaN where there are none."""
    place = np.clip(np.searchsorted(edges, steps) - 1, 0, len(edges) - 2)
    sums = np.bincount(place, values, minlength=len(edges) - 1)
    counts = np.bincount(place, minlength=len(edges) - 1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
