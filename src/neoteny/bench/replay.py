"""``neoteny bench replay``: what a draw and a sample cost, beside uniform replay and the paper's samplers."""

from __future__ import annotations

import json
import math
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from neoteny import __version__
from neoteny.arguments import Parser
from neoteny.bench.frames import BATCH as FRAME_BATCH
from neoteny.bench.frames import FrameCost, measure_frames
from neoteny.bench.peers import PEERS
from neoteny.bench.timing import alternate
from neoteny.replay.ages.ageing import Floats
from neoteny.replay.ages.schedules import EmphasizeRecent, GeometricDecay, LinearDecay, TruncatedGeometric, Uniform
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.priority import PrioritizedSampler
from neoteny.replay.sampling import AgeWeightedSampler, BucketedSampler, ReferenceSampler, Sampler

BATCH = 256
FIELDS: dict[str, tuple[int, ...]] = {
    "obs": (67,),
    "action": (21,),
    "next_obs": (67,),
    "reward": (),
    "terminated": (),
}  # dm_control's humanoid
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
MAIN_SIZE = 1_000_000
FRAMES = 100_000
CONSTANT_TIME = ("SWD exact", "SWD auto", "geometric", "truncated geometric")
"""The samplers whose draws must cost the same in a buffer of any size, and about what uniform ones do."""


@dataclass(frozen=True)
class Row:
    """One sampler at one size: microseconds to draw 256 slots, and to sample 256 transitions.

    Prioritised samplers also update the priorities of what they sampled.
    """

    size: int
    sampler: str
    draw_us: float | None
    sample_us: float


@dataclass(frozen=True)
class Bar:
    """A ratio that must stay on its side of a limit."""

    what: str
    ratio: float
    limit: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        """Whether it does."""
        return self.ratio <= self.limit if self.at_most else self.ratio >= self.limit

    def __str__(self) -> str:
        word = "at most" if self.at_most else "at least"
        return f"{'met ' if self.met else 'MISS'}  {self.ratio:8.2f}  {word} {self.limit:g}  {self.what}"


def main(argv: list[str]) -> int:
    """Run the benchmark and print its table."""
    parser = Parser(prog="neoteny bench replay", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--rounds", type=int, default=25, help="how often each case is measured, in turn (25)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=list(SIZES), metavar="N", help="buffer sizes to measure"
    )
    parser.add_argument(
        "--frames", type=int, default=FRAMES, metavar="N", help="pixel transitions to measure (100,000; 0 for none)"
    )
    options = parser.parse_args(argv)
    print(f"Microseconds for {BATCH} of N transitions of {sum_floats()} floats; medians of {options.rounds} rounds.")
    print("'Filling': one transition short of full. Prioritised: a sample and the update of its priorities.\n")
    print(f"{'N':>12}  {'sampler':<26}{'draw':>10}{'sample':>10}{'/ uniform':>12}")
    warnings.filterwarnings("ignore", message=".*still changes up to age")  # small buffers are measured on purpose
    rows: list[Row] = []
    for size in options.sizes:
        try:
            measured = measure(size, options.rounds)
        except MemoryError as error:
            print(f"{size:>12,}  not measured: {error}")
            continue
        if size == MAIN_SIZE:
            measured += measure_peers(size, options.rounds)
        uniform = {row.sampler: row.sample_us for row in measured if row.sampler.startswith("uniform")}
        for row in measured:
            ratio = row.sample_us / uniform["uniform, filling" if "filling" in row.sampler else "uniform"]
            draw = f"{row.draw_us:>10.1f}" if row.draw_us is not None else f"{'':>10}"
            print(f"{size:>12,}  {row.sampler:<26}{draw}{row.sample_us:>10.1f}{ratio:>12.2f}", flush=True)
        rows += measured
    frames = measure_frames(options.frames, options.rounds) if options.frames else None
    if frames:
        held = f"{frames.resident_bytes / 1e9:.3f} GB resident" if frames.resident_bytes else "resident bytes unknown"
        print(f"\n{FRAME_BATCH} stacks of 4 from {frames.transitions:,} frames: {frames.sample_us:.0f} us, {held}")
    bars = judge(rows, frames)
    print("\nBars:", *bars, sep="\n  ")
    if options.json:
        figures = {
            "neoteny": __version__,
            "numpy": np.__version__,
            "machine": platform.machine(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "rows": [asdict(row) for row in rows],
            "frames": asdict(frames) if frames else None,
            "bars": [{**asdict(bar), "met": bar.met} for bar in bars],
        }
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def measure(size: int, rounds: int) -> list[Row]:
    """Every sampler at one size, over one buffer: first one transition short of full, then wrapped."""
    buffer = ReplayBuffer(size, FIELDS, AgeWeightedSampler(Uniform()))
    _extend(buffer, size - 1)
    uniform, exact = AgeWeightedSampler(Uniform()), AgeWeightedSampler(LinearDecay())
    auto, geometric = AgeWeightedSampler(LinearDecay("auto")), AgeWeightedSampler(GeometricDecay())
    truncated = AgeWeightedSampler(TruncatedGeometric(size / 3))
    growing: dict[str, Sampler] = {"uniform": uniform, "SWD exact": exact, "SWD auto": auto}
    growing |= {"geometric": geometric, "truncated geometric": truncated}
    filling = _compare(buffer, {f"{name}, filling": sampler for name, sampler in growing.items()}, rounds, {})
    _extend(buffer, 1 + size // 3)
    full: dict[str, Sampler] = {
        "uniform": uniform,
        "SWD exact": exact,
        "SWD auto": auto,
        "geometric": geometric,
        "truncated geometric": truncated,
        "ERE (table)": AgeWeightedSampler(EmphasizeRecent()),
        "SWD bucketed (paper)": BucketedSampler(LinearDecay()),
        "SWD bucketed, cached": BucketedSampler(LinearDecay(), cached=True),
        "SWD reference (Alg. 1)": ReferenceSampler(LinearDecay()),
    }
    errors = np.random.default_rng(1).exponential(size=size)
    prioritised: dict[str, Callable[[], object]] = {}
    for name, schedule in {"PER": None, "PER x SWD": LinearDecay()}.items():
        own = buffer.with_sampler(PrioritizedSampler(schedule), seed=0)
        own.update_priorities(own.gather(np.arange(size)), errors)
        prioritised[name] = _sampling_and_updating(own, errors[:BATCH])
    return _compare(buffer, full, rounds, prioritised) + filling[1:]


def measure_peers(size: int, rounds: int) -> list[Row]:
    """Other libraries at the same size, beside our uniform sample; those that do not work here are named."""
    buffer = ReplayBuffer(size, FIELDS, AgeWeightedSampler(Uniform()))
    _extend(buffer, size)
    errors = np.random.default_rng(1).exponential(size=BATCH)
    cases = {"uniform": _sampling(buffer, AgeWeightedSampler(Uniform()))}
    for name, peer in PEERS.items():
        try:
            plain, prioritised = peer(size, FIELDS, BATCH, errors)
            prioritised()
            cases |= {f"{name} uniform": plain, f"{name} PER": prioritised}
        except Exception as error:  # whatever keeps another library from working here, say it and go on
            print(f"{'':>12}  {name}: not measured ({type(error).__name__}: {str(error).splitlines()[0][:90]})")
    times = alternate(cases, rounds)
    return [Row(size, name, None, taken) for name, taken in times.items() if name != "uniform"]


def judge(rows: list[Row], frames: FrameCost | None) -> list[Bar]:
    """The bars that the sizes measured allow."""
    at = {(row.size, row.sampler): row for row in rows}
    bars = []
    if (MAIN_SIZE, "uniform") in at:
        bare, uniform = at[MAIN_SIZE, "bare NumPy"], at[MAIN_SIZE, "uniform"]
        exact, reference = at[MAIN_SIZE, "SWD exact"], at[MAIN_SIZE, "SWD reference (Alg. 1)"]
        per, product = at[MAIN_SIZE, "PER"], at[MAIN_SIZE, "PER x SWD"]
        assert reference.draw_us
        assert exact.draw_us
        bars += [
            Bar("uniform sample / bare integers + take(out=), N = 1M", uniform.sample_us / bare.sample_us, 1.3),
            *(
                Bar(f"{name} sample / uniform sample, N = 1M", at[MAIN_SIZE, name].sample_us / uniform.sample_us, 1.1)
                for name in CONSTANT_TIME
            ),
            *(
                Bar(
                    f"{name} sample / uniform sample, N = 1M, filling",
                    at[MAIN_SIZE, f"{name}, filling"].sample_us / at[MAIN_SIZE, "uniform, filling"].sample_us,
                    1.25,
                )
                for name in CONSTANT_TIME
            ),
            Bar("SWD reference draw / SWD exact draw, N = 1M", reference.draw_us / exact.draw_us, 100, False),
            Bar("PER sample and update / uniform sample, N = 1M", per.sample_us / uniform.sample_us, 3.5),
            Bar("PER x SWD sample and update / uniform sample, N = 1M", product.sample_us / uniform.sample_us, 6),
        ]
    for name in CONSTANT_TIME:
        small, large = at.get((min(SIZES), name)), at.get((max(SIZES), name))
        if small and large and small.draw_us and large.draw_us:
            bars.append(Bar(f"{name} draw, N = 10M / N = 10k", large.draw_us / small.draw_us, 1.5))
    if frames and frames.resident_bytes and frames.transitions == FRAMES:
        bars.append(Bar("GB resident for 100k frames", frames.resident_bytes / 1e9, 0.85))
    return bars


def sum_floats() -> int:
    """The floats of one transition."""
    return sum(math.prod(shape) for shape in FIELDS.values())


def _compare(
    buffer: ReplayBuffer,
    samplers: dict[str, Sampler],
    rounds: int,
    more: dict[str, Callable[[], object]],
) -> list[Row]:
    rng = np.random.default_rng(0)
    out = np.empty((BATCH, sum_floats()), np.float32)
    size = buffer.num_stored

    def bare_draw() -> object:
        return rng.integers(0, size, BATCH)

    def bare_sample() -> object:
        return np.take(buffer.rows, rng.integers(0, size, BATCH), axis=0, out=out, mode="clip")

    def draw(sampler: Sampler) -> Callable[[], object]:
        return lambda: sampler.slots(
            rng, BATCH, num_stored=size, head=buffer.head, capacity=buffer.capacity, num_envs=1
        )

    draws = {"bare NumPy": bare_draw} | {name: draw(sampler) for name, sampler in samplers.items()}
    samples = {"bare NumPy": bare_sample} | {name: _sampling(buffer, sampler) for name, sampler in samplers.items()}
    draw_times, sample_times = alternate(draws, rounds), alternate(samples | more, rounds)
    return [Row(buffer.capacity, name, draw_times.get(name), taken) for name, taken in sample_times.items()]


def _sampling(buffer: ReplayBuffer, sampler: Sampler) -> Callable[[], object]:
    own = buffer.with_sampler(sampler, seed=0)
    out = np.empty((BATCH, sum_floats()), np.float32)
    return lambda: own.sample(BATCH, out)


def _sampling_and_updating(buffer: ReplayBuffer, errors: Floats) -> Callable[[], object]:
    out = np.empty((BATCH, sum_floats()), np.float32)
    return lambda: buffer.update_priorities(buffer.sample(BATCH, out), errors)


def _extend(buffer: ReplayBuffer, count: int) -> None:
    rng = np.random.default_rng(0)
    while count > 0:
        steps = min(count, 100_000)
        buffer.extend(**{name: rng.random((steps, *shape), np.float32) for name, shape in FIELDS.items()})
        count -= steps
