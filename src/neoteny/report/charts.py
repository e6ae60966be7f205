"""The figures of the page: what Plotly is given, as plain data. The page itself adds the colours of light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from neoteny.report.shapes import Curve, Dot, Dots, Lines, Look

Figure = dict[str, Any]


def chart(panel: Lines | Dots, styles: Mapping[str, Look]) -> Figure:
    """A panel for Plotly."""
    return _lines(panel, styles) if isinstance(panel, Lines) else _dots(panel, styles)


def _lines(panel: Lines, styles: Mapping[str, Look]) -> Figure:
    traces = [trace for one in panel.curves for trace in _curve(one, styles[one.method])]
    axis: Figure = {"title": _title(panel.xlabel), "tickformat": "~s" if panel.xlabel == "step" or panel.log else ""}
    layout = {
        "xaxis": {**axis, "type": "log"} if panel.log else axis,
        "yaxis": {"title": _title(panel.ylabel)},
        "height": 330 + 20 * max(0, len(panel.curves) - 2),
        "margin": {"l": 58, "r": 12, "t": 8, "b": 44},
        "hovermode": "x unified",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    }
    return {"data": traces, "layout": layout}


def _curve(one: Curve, look: Look) -> list[Figure]:
    """The band, and the line over it; a click on the line's name hides both."""
    shared = {"legendgroup": one.method, "mode": "lines"}
    red, green, blue = (int(look.colour[i : i + 2], 16) for i in (1, 3, 5))
    band = {
        "x": plain([*one.x, *one.x[::-1]]),
        "y": plain([*one.high, *one.low[::-1]]),
        "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},0.16)",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    line = {
        "x": plain(one.x),
        "y": plain(one.mean),
        "name": _literal(f"{one.method} ({one.runs})"),
        "line": {"color": look.colour, "dash": look.dash, "width": 2.4},
        "hovertemplate": "%{y:.4~g}",
    }
    return [{**shared, **band}, {**shared, **line}]


def _dots(panel: Dots, styles: Mapping[str, Look]) -> Figure:
    traces = [_dot(dot, styles[dot.method], panel.percent) for dot in panel.dots]
    marked = [dot for dot in panel.dots if dot.mark is not None]
    if marked:
        traces.append(
            {
                "x": plain([dot.mark for dot in marked]),
                "y": [_wrapped(dot.label) for dot in marked],
                "mode": "markers",
                "marker": {"symbol": "star", "size": 12, "color": "ink"},
                "name": "the paper",
                "hovertemplate": "the paper: %{x:+.1%}<extra></extra>",
            }
        )
    shapes = []
    if panel.line is not None:
        line = {"color": "ink", "width": 1, "dash": "dash"}
        shapes = [{"type": "line", "xref": "x", "yref": "paper", "x0": panel.line, "x1": panel.line, "y0": 0, "y1": 1}]
        shapes[0]["line"] = line
    axis: Figure = {"title": _title(panel.xlabel), "automargin": True}
    if panel.percent:
        axis["tickformat"] = "+.0%"
    if panel.span is not None:
        axis["range"] = list(panel.span)
    layout = {
        "xaxis": axis,
        "yaxis": {"automargin": True, "range": [len(panel.dots) - 0.5, -0.5], "type": "category"},
        "height": 96 + sum(20 + 18 * _wrapped(dot.label).count("<br>") + 12 for dot in panel.dots),
        "margin": {"l": 8, "r": 12, "t": 8, "b": 48},
        "showlegend": False,
        "shapes": shapes,
    }
    return {"data": traces, "layout": layout}


def _dot(dot: Dot, look: Look, percent: bool) -> Figure:
    form = "+.1%" if percent else ".4~g"
    trace: Figure = {
        "x": plain([dot.value]),
        "y": [_wrapped(dot.label)],
        "mode": "markers",
        "name": _literal(dot.label),
        "marker": {"color": look.colour, "symbol": look.marker, "size": 11},
        "hovertemplate": f"%{{x:{form}}}<extra></extra>",
    }
    if math.isfinite(dot.low) and math.isfinite(dot.high):
        sides = {"array": plain([dot.high - dot.value]), "arrayminus": plain([dot.value - dot.low])}
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            **sides,
            "color": look.colour,
            "thickness": 3,
            "width": 5,
        }
        bounds = f"{dot.low:{'+.1%' if percent else '.4g'}} to {dot.high:{'+.1%' if percent else '.4g'}}"
        trace["hovertemplate"] = f"%{{x:{form}}} ({bounds})<extra></extra>"
    return trace


def _title(text: str) -> Figure:
    return {"text": text, "font": {"size": 12}, "standoff": 8}


def _wrapped(label: str, width: int = 22) -> str:
    """A label in lines short enough for a phone."""
    lines = [""]
    for word in label.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(map(_literal, lines))


def _literal(text: str) -> str:
    """Text as it is, where Plotly would read tags and entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain(values: Any) -> list[float | None]:
    """Numbers for JSON: six digits, and null for what is none."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in np.asarray(values, np.float64)]
