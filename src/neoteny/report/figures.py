"""Static figures, by matplotlib: PDF, SVG and PNG of every section."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neoteny.report.shapes import Dots, Lines, Look, Section

FORMATS = ("pdf", "svg", "png")
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (9, 3))}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "x": "X"}
_STEADY: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
"""Without the date, so that the same runs give the same file."""
_STYLE: dict[Any, Any] = {"svg.hashsalt": "neoteny", "pdf.fonttype": 42, "text.parse_math": False, "text.usetex": False}
"""The same bytes each time; letters as text in a PDF; and a $ in a name is a $."""
_PIXELS, _SIDE = 5e7, 60_000
"""Of a PNG, and of one of its sides, at most."""


def write_figures(sections: tuple[Section, ...], styles: Mapping[str, Look], footnote: str, folder: Path) -> list[Path]:
    """Each section in each format; its panels in rows of two or three."""
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a letter that the font lacks is drawn as a box
        for section in sections:
            figure = _figure(section, styles, footnote)
            width, height = figure.get_size_inches()
            dpi = min(150.0, math.sqrt(_PIXELS / (width * height)), _SIDE / max(width, height))
            for kind in FORMATS:
                written.append(folder / f"{section.name}.{kind}")
                figure.savefig(written[-1], dpi=dpi, metadata=_STEADY[kind])
    return written


def _figure(section: Section, styles: Mapping[str, Look], footnote: str) -> Any:
    from matplotlib.figure import Figure

    columns = 2 if len(section.panels) == 4 else min(3, len(section.panels))
    rows = math.ceil(len(section.panels) / columns)
    tallest = max(_height(panel) for panel in section.panels)
    figure = Figure(figsize=(5.2 * columns + 0.6, tallest * rows + 1.0), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, panel in zip(axes, section.panels, strict=False):
        if isinstance(panel, Lines):
            _lines(ax, panel, styles)
        else:
            _dots(ax, panel, styles)
    for ax in axes[len(section.panels) :]:
        ax.set_axis_off()
    figure.suptitle(_short(section.title))
    note = textwrap.fill(footnote, 75 * columns)
    figure.supxlabel(note, fontsize=7.5, x=0.01, ha="left", color="#444444")
    return figure


def _short(text: str) -> str:
    """A label that leaves room for the figure."""
    return text if len(text) <= 70 else f"{text[:45]} ... {text[-20:]}"


def _height(panel: Lines | Dots) -> float:
    return 3.6 if isinstance(panel, Lines) else 1.0 + 0.34 * len(panel.dots)


def _lines(ax: Any, panel: Lines, styles: Mapping[str, Look]) -> None:
    drawn, labels = [], []
    for one in panel.curves:
        look = styles[one.method]
        drawn += ax.plot(one.x, one.mean, color=look.colour, linestyle=_DASHES[look.dash], linewidth=1.8)
        labels.append(_short(f"{one.method} ({one.runs})"))
        ax.fill_between(one.x, one.low, one.high, color=look.colour, alpha=0.15, linewidth=0)
    ax.set_title(_short(panel.title), fontsize=10)
    ax.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
    ax.grid(alpha=0.25)
    if panel.log:
        ax.set_xscale("log")
    if panel.xlabel == "step":
        ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1_000:,g}k" if value else "0")
    if panel.curves:
        # Given, since labels that begin with _ would be left out.
        ax.legend(drawn, labels, fontsize=7, framealpha=0.6)


def _dots(ax: Any, panel: Dots, styles: Mapping[str, Look]) -> None:
    for place, dot in enumerate(reversed(panel.dots)):
        look = styles[dot.method]
        if math.isfinite(dot.low) and math.isfinite(dot.high):
            ax.plot([dot.low, dot.high], [place, place], color=look.colour, linewidth=5, alpha=0.35)
        ax.plot([dot.value], [place], color=look.colour, marker=_MARKERS[look.marker], markersize=7)
        if dot.mark is not None:
            ax.plot([dot.mark], [place], color="black", marker="*", markersize=9)
    if panel.line is not None:
        ax.axvline(panel.line, color="black", linestyle="--", linewidth=0.8)
    ax.set_yticks(range(len(panel.dots)), [_short(dot.label) for dot in reversed(panel.dots)], fontsize=8)
    ax.set_ylim(-0.6, len(panel.dots) - 0.4)
    ax.set_title(_short(panel.title), fontsize=10)
    ax.set_xlabel(panel.xlabel)
    if panel.span is not None:
        ax.set_xlim(*panel.span)
    if panel.percent:
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:+.0%}" if abs(value) < 1e4 else f"{100 * value:+.2g}%")
    ax.grid(alpha=0.25, axis="x")
