"""The plots of ``neoteny theory``, in colours that colour-blind people tell apart, and marks that differ without."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from neoteny.replay.ages.schedules import LinearDecay
from neoteny.theory.results import Check

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#777777"
"""Okabe and Ito's."""


def draw_all(findings: Mapping[str, Check], out: Path) -> list[Path]:
    """Write every plot into `out`; needs matplotlib."""
    from matplotlib.figure import Figure

    written = []
    for name, draw in {"bound": bound, "gradient": gradient, "kernel": kernel}.items():
        figure = Figure(figsize=(10, 4), layout="constrained")
        draw(figure.subplots(1, 2), findings)
        written.append(_save(figure, out / f"{name}.png"))
    figure = Figure(figsize=(10, 4), layout="constrained")
    choosing(figure.subplots(1, 2))
    return [*written, _save(figure, out / "choosing.png")]


def _save(figure: Any, path: Path) -> Path:
    for panel in figure.axes:
        panel.grid(alpha=0.25)
    figure.savefig(path, dpi=90)
    return path


def bound(panels: Any, findings: Mapping[str, Check]) -> None:
    """Theorem 2: how near random problems come, and the case of equality."""
    left, right = panels
    edges = np.linspace(0, 1, 41)
    for name, colour, style in (("Theorem 2", BLUE, "-"), ("Theorem 2 (entropy)", ORANGE, "--")):
        left.stairs(findings[name].data["ratios"], edges, color=colour, linestyle=style, linewidth=2, label=name)
    left.set(yscale="log", xlabel="gap / bound, worst start state", ylabel="problems", title="Random problems")
    left.axvline(1, color="black", linewidth=1)
    left.legend()
    tight = findings["Theorem 2, tight"].data
    right.plot(tight["horizons"], tight["equal"], "o", color=BLUE, markersize=4, label="Theorem 2")
    right.plot(tight["horizons"], tight["soft"], "x", color=ORANGE, label="its entropy form, alpha 1e-4")
    right.plot(tight["horizons"], tight["without"], "--", color=RED, linewidth=2, label="without sqrt(H): broken")
    right.axhline(1, color="black", linewidth=1)
    right.set(xlabel="horizon H", ylabel="gap / bound", title="The tight case: residuals of opposite sign")
    right.legend()


def gradient(panels: Any, findings: Mapping[str, Check]) -> None:
    """The fresh term under every law, and the raw norm of real FQI."""
    left, right = panels
    styles = {
        "uniform": (GREY, "o"),
        "SWD, w_min 0.1": (BLUE, "s"),
        "SWD, w_min 0": (GREEN, "^"),
        "SWA": (RED, "v"),
        "uniform, N 400": (PURPLE, "D"),
    }
    for name, (colour, marker) in styles.items():
        data = findings[f"Fresh, {name}"].data
        left.plot(data["k"], data["predicted"], "-", color=colour, linewidth=1.5)
        left.plot(data["k"], data["measured"], marker, color=colour, markersize=5, label=name)
    left.set(xscale="log", yscale="log", xlabel="k", ylabel="norm of the fresh term")
    left.set_title("Policy and targets fixed, T 400\nlines predicted, marks measured", fontsize=10)
    left.legend(fontsize=8)
    data = findings["Raw norm"].data
    for part, colour, marker in (("total", "black", "o"), ("fresh", BLUE, "s"), ("drift", ORANGE, "^")):
        right.plot(data["k"], data[part], marker=marker, color=colour, label=part)
    first, start = data["k"][0], data["fresh"][0]
    right.plot(data["k"], [start * first / k for k in data["k"]], ":", color=GREY, label="1/k")
    right.set(xscale="log", yscale="log", xlabel="k", ylabel="norm, RMS over steps h < H")
    right.set_xticks([20, 50, 100, 200], ["20", "50", "100", "200"])
    right.minorticks_off()
    right.set_title("Real FQI: policy and targets move\nno expectation", fontsize=10)
    right.legend(fontsize=8)


def kernel(panels: Any, findings: Mapping[str, Check]) -> None:
    """The kernel's effective rank, and the time to leave a saddle."""
    left, right = panels
    data = findings["NTK rank"].data
    for run in data["warm"]:
        left.plot(run, color=BLUE, linewidth=0.6, alpha=0.5)
    left.plot(np.mean(data["warm"], axis=0), color=BLUE, linewidth=2.5, label="warm-started FQI")
    left.axhline(np.mean(data["fresh"]), color=ORANGE, linestyle="--", linewidth=2, label="fresh initialisation")
    left.axhline(np.mean(data["once"]), color=GREEN, linestyle=":", linewidth=2, label="fresh, trained once as long")
    left.set(xlabel="iteration k", ylabel="effective rank of the kernel (of 24)", ylim=(0, None), title="NTK")
    left.legend(fontsize=8)
    saddle = findings["Saddle"].data
    for name, colour, marker in (("quadratic", ORANGE, "x"), ("network", BLUE, "o")):
        label = {"quadratic": "random saddles, curvature 0.5 to 1.5", "network": "two-layer linear network"}[name]
        right.plot(saddle[name]["size"], saddle[name]["steps"], marker, color=colour, markersize=3, label=label)
    right.set(xscale="log", xlabel="first gradient along the unstable direction", ylabel="steps to leave")
    right.set_title("Saddles: ten times smaller costs the same steps each time", fontsize=10)
    right.legend(fontsize=8)


def choosing(panels: Any, size: int = 1_000_000) -> None:
    """What T and w_min do to a full buffer: the newest data's gain over uniform, and the effective sample size."""
    left, right = panels
    ts = np.geomspace(1_000, 1_000_000, 60)
    for w, colour, style in ((0.0, GREEN, ":"), (0.02, ORANGE, "--"), (0.1, BLUE, "-"), (0.3, PURPLE, "-.")):
        found = [LinearDecay(float(t), w) for t in ts]
        gains = [schedule.fresh_share(size, 1_000) * size / 1_000 for schedule in found]
        left.plot(ts, gains, style, color=colour, linewidth=2, label=f"w_min {w}")
        right.plot(ts, [schedule.effective_sample_size(size) / size for schedule in found], style, color=colour, lw=2)
    for panel in panels:
        panel.axvspan(20_000, 100_000, color=GREY, alpha=0.15)
        panel.axvline(80_000, color="black", linewidth=0.8)
        panel.set(xscale="log", xlabel="T, transitions (shaded: what the paper tried)")
    left.set(yscale="log", ylabel="newest 1,000: draws over uniform's", title=f"Freshness, N {size:,}")
    right.set(ylabel="effective sample size / N", ylim=(0, 1), title=f"Diversity, N {size:,}")
    left.legend()
