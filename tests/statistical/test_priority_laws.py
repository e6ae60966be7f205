"""The laws of prioritised replay, alone and times an age weight, against plain arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neoteny as n
from oracles import SCHEDULES, STRICT, assert_million, p_value, weight_by_hand


def with_errors(
    capacity: int, ticks: int, num_envs: int, schedule: Any, seed: int = 0
) -> tuple[n.ReplayBuffer, np.ndarray]:
    """A buffer with errors of its own for every transition, and those errors, the newest first."""
    rng = np.random.default_rng(0)
    buffer = n.ReplayBuffer(capacity, {"x": ()}, n.PrioritizedSampler(schedule), num_envs=num_envs, seed=0)
    buffer.extend(x=np.zeros((ticks, num_envs)))
    errors = rng.exponential(size=buffer.num_stored) ** 3  # a heavy tail
    buffer.update_priorities(buffer.gather(np.arange(buffer.num_stored)), errors)
    return buffer, errors


def law_by_hand(errors: np.ndarray, num_envs: int, schedule: Any) -> np.ndarray:
    size = len(errors)
    p = [(abs(error) + 1e-6) ** 0.6 for error in errors]
    if schedule is not None:
        p = [q * weight_by_hand(schedule, 1 + j // num_envs * num_envs, size) for j, q in enumerate(p)]
    return np.array(p) / sum(p)


@pytest.mark.parametrize(
    ("capacity", "ticks", "num_envs"),
    [(100, 60, 1), (100, 100, 1), (100, 263, 1), (700, 800, 1), (100, 43, 7), (600, 5, 7)],
)
@pytest.mark.parametrize("schedule", [None, *SCHEDULES], ids=str)
@pytest.mark.filterwarnings("ignore:.*still changes up to age")
def test_draws_follow_the_product(capacity: int, ticks: int, num_envs: int, schedule: Any) -> None:
    buffer, errors = with_errors(capacity, ticks, num_envs, schedule)
    law = law_by_hand(errors, num_envs, schedule)
    np.testing.assert_allclose(buffer.law(), law, rtol=1e-9, atol=1e-15)
    drawn = buffer.clock - 1 - buffer.sample(100_000).numbers
    counts = np.bincount(drawn, minlength=len(law))
    assert not counts[law == 0].any()
    rare = law * 100_000 < 5
    pooled = np.append(counts[~rare], counts[rare].sum())
    assert p_value(pooled, np.append(law[~rare], law[rare].sum())) > STRICT


@pytest.mark.parametrize("schedule", [None, n.LinearDecay(), n.LinearDecay(1_000, 0), n.LinearDecay(50.5, 0)], ids=str)
def test_draws_of_a_million(schedule: Any) -> None:
    """T far below the size and no floor: where rejection from the whole tree would keep one draw in thousands."""
    buffer, errors = with_errors(1_000_000, 1_300_000, 1, schedule)
    weights = np.ones(1_000_000) if schedule is None else schedule.weight(np.arange(1, 1_000_001))
    law = (errors + 1e-6) ** 0.6 * weights
    drawn = np.concatenate([buffer.clock - 1 - buffer.sample(100_000).numbers for _ in range(20)])
    assert_million(drawn, law / law.sum())


def test_the_product_test_can_fail() -> None:
    """Importance of the age forgotten: seen at once."""
    buffer, errors = with_errors(100, 263, 1, None)
    drawn = buffer.clock - 1 - buffer.sample(100_000).numbers
    assert p_value(np.bincount(drawn, minlength=100), law_by_hand(errors, 1, n.LinearDecay(337.7, 0.1))) < STRICT


class Rising:
    """A user's schedule of the size, not monotone, negative beyond it: no age that is not held may be asked for."""

    uses = ("num_stored",)

    def weight(self, age: np.ndarray, num_stored: int) -> np.ndarray:
        return 2.5 - 2 * age / num_stored + 0.5 * np.sin(age)


@pytest.mark.parametrize("ticks", [300, 900])
def test_a_users_schedule_of_the_size(ticks: int) -> None:
    buffer, errors = with_errors(700, ticks, 1, Rising())
    size = len(errors)
    ages = np.arange(1, size + 1)
    law = (errors + 1e-6) ** 0.6 * (2.5 - 2 * ages / size + 0.5 * np.sin(ages))
    drawn = np.concatenate([buffer.clock - 1 - buffer.sample(100_000).numbers for _ in range(4)])
    assert_million(drawn, law / law.sum())
