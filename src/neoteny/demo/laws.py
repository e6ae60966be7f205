"""``neoteny demo laws``: draw from a wrapped buffer of a million under every schedule, and make a picture of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from neoteny.arguments import Parser
from neoteny.errors import missing_extra
from neoteny.replay.ages.ageing import Describing
from neoteny.replay.ages.schedules import (
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    Uniform,
    Window,
)
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.sampling import AgeWeightedSampler
from neoteny.replay.storage import Field

SCHEDULES: dict[str, Describing] = {
    "LinearDecay (SWD, the paper)": LinearDecay(),
    "LinearGrowth (SWA, its reverse)": LinearGrowth(),
    "Uniform": Uniform(),
    "ExponentialDecay": ExponentialDecay(),
    "PolynomialDecay": PolynomialDecay(),
    "GeometricDecay (FoG)": GeometricDecay(),
    "EmphasizeRecent (ERE)": EmphasizeRecent(),
    "InverseAge": InverseAge(),
    "Window": Window(),
}


def main(argv: list[str]) -> int:
    """Draw, compare with the exact law, and write the picture."""
    parser = Parser(prog="neoteny demo laws", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("laws.png"), help="the picture to write (laws.png)")
    parser.add_argument("--draws", type=int, default=1_000_000, help="draws under each schedule (1,000,000)")
    parser.add_argument("--capacity", type=int, default=1_000_000, help="transitions in the buffer (1,000,000)")
    options = parser.parse_args(argv)
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("drawing", "report", error) from error

    stamped = wrapped_buffer(options.capacity)
    print(f"A buffer of {options.capacity:,} transitions, wrapped; {options.draws:,} draws under each schedule.")
    print(f"{'schedule':<34}{'newest vs uniform':>18}{'mean age':>12}{'effective sample':>18}{'draws/s':>14}")
    figure = Figure(figsize=(11, 8.5), layout="constrained")
    for panel, (name, schedule) in zip(
        figure.subplots(3, 3, sharex=True, sharey=True).flat, SCHEDULES.items(), strict=True
    ):
        buffer = stamped.with_sampler(AgeWeightedSampler(schedule), seed=0)
        buffer.sample(256)  # builds the table, if the schedule needs one
        start = time.perf_counter()
        stamps = buffer.sample(options.draws)["stamp"]
        seconds = time.perf_counter() - start
        ages = buffer.clock - stamps
        summary = schedule.describe(capacity=options.capacity)
        print(
            f"{name:<34}{summary.newest_share:>16.2f} x{ages.mean():>12,.0f}"
            f"{summary.effective_sample_size:>18,.0f}{options.draws / seconds:>14,.0f}"
        )
        plot_law(panel, name, ages, buffer.law())
    figure.axes[0].legend(loc="lower left", frameon=False)
    figure.supxlabel("age: transitions added since (log scale)")
    figure.supylabel("how often an age is drawn, over uniform replay (log scale)")
    figure.suptitle(
        f"Draws (dots) and the exact law (line): {options.draws:,} draws from a wrapped buffer of {options.capacity:,}"
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=110)
    print(f"\nWrote {options.out}: the dots are draws, aged by the stamp that each transition carries.")
    return 0


def wrapped_buffer(capacity: int) -> ReplayBuffer:
    """A full buffer that has wrapped, whose transitions each carry the clock at which they were added."""
    buffer = ReplayBuffer(capacity, {"stamp": Field((), np.int32)}, AgeWeightedSampler(Uniform()))
    buffer.extend(stamp=np.arange(capacity))
    buffer.extend(stamp=np.arange(capacity, capacity + capacity // 3))
    return buffer


def plot_law(panel: Any, name: str, ages: np.ndarray, law: np.ndarray) -> None:
    """Draws over the exact law, each relative to uniform, in bins that grow with the age."""
    size = len(law)
    edges = np.unique(np.geomspace(1, size + 1, 61).astype(int))
    uniform = np.diff(edges) / size
    exact = np.add.reduceat(law, edges[:-1] - 1) / uniform
    drawn = np.histogram(ages, edges)[0] / len(ages) / uniform
    middle = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    panel.plot(middle, np.where(exact > 0, exact, np.nan), color="#b0b0b0", linewidth=5, label="exact law")
    shown = drawn * uniform * len(ages) >= 30  # fewer draws in a bin are mostly noise
    panel.plot(middle[shown], drawn[shown], "o", color="#0b5fa5", markersize=3.2, label="draws")
    panel.set(xscale="log", yscale="log", ylim=(5e-3, 5e2), title=name)
    panel.grid(alpha=0.25)
