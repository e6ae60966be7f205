"""``neoteny bench integrations``: what a framework's own sample costs with our draws, over its uniform sample.

Of prioritised replay the new priorities of the batch are part of the cost.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from neoteny import __version__
from neoteny.arguments import Parser
from neoteny.bench.replay import BATCH, FIELDS, MAIN_SIZE, Bar, sum_floats
from neoteny.bench.timing import each_round

Case = Callable[[], object]
LIMIT = 1.15
ROUND = 0.002
"""Seconds of a case in a round: so short that a busy machine interrupts few rounds, which medians leave out."""
DECAY_STEPS = 80_000
CHUNK = 100_000


@dataclass(frozen=True)
class Row:
    """One framework: microseconds of its uniform sample and of ours, and the ratio of the two in the same round."""

    framework: str
    version: str
    uniform_us: float
    aged_us: float
    ratio: float
    lower_quartile: float
    upper_quartile: float


def main(argv: list[str]) -> int:
    """Measure every framework that is installed, and print a table."""
    parser = Parser(prog="neoteny bench integrations", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--rounds", type=int, default=1001, help="how often each case is measured, in turn (1,001)")
    parser.add_argument("--size", type=int, default=MAIN_SIZE, metavar="N", help="transitions held (1,000,000)")
    parser.add_argument("--framework", choices=FRAMEWORKS, help="only this one")
    options = parser.parse_args(argv)
    print(
        f"Microseconds for {BATCH} of {options.size:,} transitions of {sum_floats()} floats, from the framework's own"
    )
    print(f"sample: medians of {options.rounds} rounds, and the ratio within a round with its quartiles.\n")
    print(f"{'framework':<20}{'uniform':>10}{'ours':>10}{'/ uniform':>12}{'quartiles':>16}")
    rows = []
    for name in [options.framework] if options.framework else FRAMEWORKS:
        try:
            row = measure(name, options.size, options.rounds)
        except ImportError as error:
            print(f"{name:<20}not measured: {error}", flush=True)
            continue
        quartiles = f"{row.lower_quartile:.2f} to {row.upper_quartile:.2f}"
        label = f"{name} {row.version}"
        print(f"{label:<20}{row.uniform_us:>10.1f}{row.aged_us:>10.1f}{row.ratio:>12.2f}{quartiles:>16}", flush=True)
        rows.append(row)
    by_age = [row for row in rows if row.framework not in PRIORITISED]
    bars = [Bar(f"{row.framework}: aged sample / uniform sample", row.ratio, LIMIT) for row in by_age]
    if options.size == MAIN_SIZE and bars:
        print("\nBars:", *bars, sep="\n  ")
    if options.json:
        figures = {
            "neoteny": __version__,
            "machine": platform.machine(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "size": options.size,
            "rows": [asdict(row) for row in rows],
            "bars": [{**asdict(bar), "met": bar.met} for bar in bars],
        }
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def measure(name: str, size: int, rounds: int) -> Row:
    """One framework, uniform and aged in turn."""
    package, make = FRAMEWORKS[name]
    uniform, aged = make(size)
    taken = each_round({"uniform": uniform, "aged": aged}, rounds, ROUND)
    ratios = [ours / theirs for ours, theirs in zip(taken["aged"], taken["uniform"], strict=True)]
    lower, middle, upper = np.quantile(ratios, [0.25, 0.5, 0.75]).tolist()
    uniform_us, aged_us = statistics.median(taken["uniform"]), statistics.median(taken["aged"])
    return Row(name, version(package), uniform_us, aged_us, middle, lower, upper)


def sb3(size: int) -> tuple[Case, Case]:
    """SB3's ReplayBuffer, and ours converted from it: both over the same arrays."""
    from neoteny.integrations.sb3 import AgeWeightedReplayBuffer

    uniform = _sb3_uniform(size)
    aged = AgeWeightedReplayBuffer.from_buffer(uniform, decay_steps=min(DECAY_STEPS, size))
    return lambda: uniform.sample(BATCH), lambda: aged.sample(BATCH)


def sb3_prioritised(size: int, aged: bool) -> tuple[Case, Case]:
    """SB3's ReplayBuffer, and by priority, or by priority x age, with the update of the priorities."""
    from neoteny.integrations.sb3 import PrioritizedReplayBuffer

    uniform = _sb3_uniform(size)
    decay_steps = min(DECAY_STEPS, size) if aged else None
    prioritised = PrioritizedReplayBuffer.from_buffer(uniform, decay_steps=decay_steps)
    rng = np.random.default_rng(0)
    for count in _chunks(size):  # priorities that differ
        prioritised.sample(count)
        prioritised.update_priorities(rng.exponential(size=count))
    errors = cycle(rng.exponential(size=(1024, BATCH)))

    def case() -> None:
        prioritised.sample(BATCH)
        prioritised.update_priorities(next(errors))

    return lambda: uniform.sample(BATCH), case


def _sb3_uniform(size: int) -> Any:
    import torch
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    torch.set_num_threads(1)
    (obs,), (action,) = FIELDS["obs"], FIELDS["action"]
    uniform = ReplayBuffer(size, spaces.Box(-1, 1, (obs,)), spaces.Box(-1, 1, (action,)), device="cpu")
    for array in (uniform.observations, uniform.next_observations, uniform.actions, uniform.rewards):
        array[:] = 1.0  # every page is touched
    uniform.pos, uniform.full = size // 3, True
    return uniform


def torchrl(size: int) -> tuple[Case, Case]:
    """TorchRL's TensorDictReplayBuffer: two buffers over one storage."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    from neoteny.integrations.torchrl import AgeWeightedSampler

    torch.set_num_threads(1)
    storage = LazyTensorStorage(size)
    aged = TensorDictReplayBuffer(
        storage=storage, sampler=AgeWeightedSampler(decay_steps=DECAY_STEPS), batch_size=BATCH
    )
    for count in _chunks(size):
        rows = {name: torch.rand(count, *shape) for name, shape in FIELDS.items()}
        aged.extend(TensorDict(rows, batch_size=[count]))
    uniform = TensorDictReplayBuffer(storage=storage, batch_size=BATCH)
    return uniform.sample, aged.sample


def flashbax(size: int) -> tuple[Case, Case]:
    """flashbax's item buffer: two compiled functions over one state."""
    import jax
    import jax.numpy as jnp
    from flashbax import make_item_buffer

    from neoteny.integrations.flashbax import make_age_weighted_item_buffer

    buffers: list[Any] = [
        make_item_buffer(size, BATCH, BATCH, add_sequences=True),
        make_age_weighted_item_buffer(size, BATCH, BATCH, add_sequences=True, decay_steps=DECAY_STEPS),
    ]
    state = jax.jit(buffers[0].init)({name: jnp.zeros(shape) for name, shape in FIELDS.items()})
    add = jax.jit(buffers[0].add, donate_argnums=0)
    rng = np.random.default_rng(0)
    for count in _chunks(size):
        state = add(state, {name: rng.random((count, *shape), np.float32) for name, shape in FIELDS.items()})
    keys = cycle(list(jax.random.split(jax.random.key(0), 1024)))

    def case(buffer: Any) -> Case:
        sample = jax.jit(buffer.sample)
        return lambda: jax.block_until_ready(sample(state, next(keys)))  # type: ignore[no-untyped-call]

    uniform, aged = map(case, buffers)
    return uniform, aged


FRAMEWORKS: dict[str, tuple[str, Callable[[int], tuple[Case, Case]]]] = {
    "SB3": ("stable-baselines3", sb3),
    "SB3 PER": ("stable-baselines3", partial(sb3_prioritised, aged=False)),
    "SB3 PER x age": ("stable-baselines3", partial(sb3_prioritised, aged=True)),
    "TorchRL": ("torchrl", torchrl),
    "flashbax": ("flashbax", flashbax),
}
"""Each framework: its package, and what makes its uniform sample and ours over a wrapped buffer of a size."""
PRIORITISED = ("SB3 PER", "SB3 PER x age")
"""Those by priority, which uniform samples set no limit to."""


def _chunks(size: int) -> list[int]:
    """How many transitions to add at a time until the buffer has wrapped, by a third."""
    left, counts = size + size // 3, []
    while left > 0:
        counts.append(min(left, CHUNK, size))
        left -= counts[-1]
    return counts
