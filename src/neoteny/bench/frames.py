"""What stacked frames cost: microseconds for 32 stacks of four from 100,000 transitions, and the bytes they hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neoteny.bench.timing import alternate
from neoteny.replay.ages.schedules import LinearDecay
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.frames import Frames
from neoteny.replay.sampling import AgeWeightedSampler
from neoteny.replay.storage import Field

BATCH = 32
EPISODE = 200


@dataclass(frozen=True)
class FrameCost:
    """One buffer of frames, filled and wrapped."""

    transitions: int
    sample_us: float
    resident_bytes: int | None


def measure_frames(transitions: int, rounds: int) -> FrameCost:
    """Fill a buffer with Atari-shaped frames, then sample from it."""
    before = resident_bytes()
    flag = Field((), np.bool_)
    fields: dict[str, Field | Frames] = {
        "obs": Frames(),
        "action": Field((), np.int32),
        "reward": Field(),
        "terminated": flag,
        "truncated": flag,
    }
    buffer = ReplayBuffer(transitions, fields, AgeWeightedSampler(LinearDecay(transitions / 2)), seed=0)
    pool = np.random.default_rng(0).integers(0, 256, (64, 84, 84), dtype=np.uint8)
    for step in range(transitions + transitions // 10):
        age = step % EPISODE
        newest = np.array([max(0, age - back) for back in (4, 3, 2, 1, 0, -1)]) + step // EPISODE
        stack = pool[newest[1:] % len(pool)]
        ended = age == EPISODE - 1
        buffer.add(obs=stack[:4], next_obs=stack[1:], action=0, reward=0.0, terminated=ended, truncated=False)
    after = resident_bytes()
    times = alternate({"sample": lambda: buffer.sample(BATCH)}, rounds)
    return FrameCost(transitions, times["sample"], after - before if before and after else None)


def resident_bytes() -> int | None:
    """The memory that this process holds, where the system tells."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except OSError:
        return None
