"""``neoteny bench checkpoint``: what a checkpoint of a large replay costs, in seconds of pause and bytes on disk."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from neoteny.arguments import Parser
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.registry import make_sampler
from neoteny.replay.storage import transition_fields
from neoteny.runs import checkpoint
from neoteny.runs.checkpoint import Checkpoints

STATE_BYTES = 4 << 20
"""About what TD3's networks and optimisers are."""


def main(argv: list[str]) -> int:
    """Fill a buffer, then save it whole, save it again with a little more in it, and load it."""
    parser = Parser(prog="neoteny bench checkpoint", description=__doc__)
    parser.add_argument("--transitions", type=int, default=1_000_000, help="transitions held (1,000,000)")
    parser.add_argument("--new", type=int, default=60_000, help="transitions between two checkpoints (60,000)")
    parser.add_argument("--obs", type=int, default=17, help="numbers in an observation (17, HalfCheetah's)")
    options = parser.parse_args(argv)
    print(f"{options.transitions:,} transitions held, {options.new:,} new ones between checkpoints\n")
    print(f"{'replay':<8}{'bytes each':>12}{'first save':>12}{'next save':>12}{'load':>9}{'on disk':>11}")
    for replay in ("uniform", "swd", "per"):
        _measure(replay, options.transitions, options.new, options.obs)
    print("\nSeconds. While training, segments of 32 MB are written as they fill: a save finds less left to write.")
    return 0


def _measure(replay: str, held: int, new: int, obs: int) -> None:
    sampler = make_sampler(replay, "exact", held / 10, {})
    fields = transition_fields((obs,), (6,))
    buffer = ReplayBuffer(held, fields, sampler, seed=0)
    state = {"agent": np.random.default_rng(0).random(STATE_BYTES // 4, np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        checkpoints = Checkpoints(directory)
        (directory / "metrics.jsonl").touch()
        _fill(buffer, held, obs)
        first = _seconds(lambda: checkpoints.save(state, buffer, 1, 0, {}))
        _fill(buffer, new, obs)
        second = _seconds(lambda: checkpoints.save(state, buffer, 2, 0, {}))
        size = sum(path.stat().st_size for path in directory.rglob("*.npz"))
        other = ReplayBuffer(held, fields, sampler, seed=1)

        def use(found: checkpoint.Checkpoint, saved: dict[str, Any]) -> None:
            other.restore(saved["replay"])
            for number, arrays in checkpoint.segments(directory, found):
                other.put(number, arrays)

        load = _seconds(lambda: checkpoint.load(directory, use))
        assert (other.sample(256).rows == buffer.sample(256).rows).all()
    each = buffer.bytes_per_transition
    print(f"{replay:<8}{each:>12}{first:>12.2f}{second:>12.2f}{load:>9.2f}{size / 1e6:>8,.0f} MB", flush=True)


def _fill(buffer: ReplayBuffer, count: int, obs: int) -> None:
    rng = np.random.default_rng(buffer.clock)
    for start in range(0, count, 10_000):
        n = min(10_000, count - start)
        buffer.extend(
            obs=rng.random((n, obs), np.float32),
            action=rng.random((n, 6), np.float32),
            reward=rng.random(n, np.float32),
            next_obs=rng.random((n, obs), np.float32),
            terminated=np.zeros(n, bool),
            truncated=np.zeros(n, bool),
        )
    buffer.sample(256)


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
