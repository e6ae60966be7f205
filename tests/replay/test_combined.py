"""Combined experience replay: the newest is in every batch, and the rest follows its law."""

from __future__ import annotations

import numpy as np
import pytest

from neoteny import LinearDecay, ReplayBuffer
from neoteny.replay.combined import CombinedSampler
from oracles import STRICT, p_value


def filled(sampler: CombinedSampler, num_envs: int, ticks: int) -> ReplayBuffer:
    buffer = ReplayBuffer(60, {"stamp": (), "env": ()}, sampler, num_envs=num_envs, seed=0)
    for tick in range(ticks):
        buffer.add(stamp=np.full(num_envs, tick), env=np.arange(num_envs))
    return buffer


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("ticks", [7, 90])
@pytest.mark.parametrize("schedule", [None, LinearDecay(20)])
def test_the_newest_is_first_and_the_rest_as_before(schedule: LinearDecay | None, num_envs: int, ticks: int) -> None:
    buffer = filled(CombinedSampler(schedule), num_envs, ticks)
    held = range(max(0, ticks - 60 // num_envs), ticks)
    batches = [buffer.sample(8) for _ in range(4_000)]
    stamps = np.stack([batch["stamp"] for batch in batches]).astype(int)
    assert (stamps[:, 0] == ticks - 1).all()
    firsts = np.bincount([int(batch["env"][0]) for batch in batches], minlength=num_envs)
    assert p_value(firsts, np.full(num_envs, 1 / num_envs)) > STRICT
    ages = (ticks - 1 - np.array(held)) * num_envs + 1
    weights = np.ones(len(held)) if schedule is None else np.maximum(0.1, 1 - ages / 20)
    assert p_value(np.bincount(stamps[:, 1:].ravel() - held[0]), weights / weights.sum()) > STRICT
    law = buffer.law().reshape(-1, num_envs).sum(axis=1)[::-1]
    expected = weights / weights.sum() * 7 / 8
    expected[-1] += 1 / 8
    np.testing.assert_allclose(law, expected, rtol=1e-9)


def test_every_one_of_several_batches_has_it() -> None:
    buffer = filled(CombinedSampler(), 2, 50)
    batch = buffer.sample(16, batches=5)
    assert (batch["stamp"].reshape(5, 16)[:, 0] == 49).all()


def test_its_state_goes_on_to_the_same_draws() -> None:
    one, other = filled(CombinedSampler(), 2, 50), filled(CombinedSampler(), 2, 50)
    one.sample(16)
    other.restore(one.state())
    np.testing.assert_array_equal(one.sample(16)["stamp"], other.sample(16)["stamp"])
    np.testing.assert_array_equal(one.law(), other.law())
