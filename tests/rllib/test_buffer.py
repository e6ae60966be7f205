"""What holds of RLlib's EpisodeReplayBuffer holds of ours: eviction, rows, n-step returns, metrics, state."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

from neoteny import Uniform
from neoteny.integrations.rllib import AgeWeightedEpisodeReplayBuffer
from oracles import STRICT, p_value
from ticking import Stamped, draw, episode


def ours(capacity: int = 10_000, **options: object) -> AgeWeightedEpisodeReplayBuffer:
    buffer = AgeWeightedEpisodeReplayBuffer(capacity, **({"decay_steps": 50, "min_weight": 0.1} | options))
    buffer.rng = np.random.default_rng(0)
    return buffer


either = pytest.mark.parametrize("make", [EpisodeReplayBuffer, ours], ids=["RLlib's", "ours"])
Make = Callable[[int], EpisodeReplayBuffer]


def names(buffer: EpisodeReplayBuffer) -> list[str]:
    return [each.id_ for each in buffer.episodes]


@either
def test_whole_episodes_are_evicted(make: Make) -> None:
    buffer = make(100)
    for name, length in (("A", 50), ("B", 25), ("C", 25)):
        buffer.add(episode(name, length, terminated=True))
    assert (names(buffer), len(buffer)) == (["A", "B", "C"], 100)
    buffer.add(episode("D", 1, terminated=True))
    assert (names(buffer), len(buffer), buffer.get_num_episodes_evicted()) == (["B", "C", "D"], 51, 1)
    buffer.add(episode("E", 200, terminated=True))
    assert (names(buffer), len(buffer), buffer.get_num_episodes_evicted()) == (["E"], 200, 4)
    buffer.add(episode("F", 2, terminated=True))
    assert (names(buffer), len(buffer), buffer.get_added_timesteps()) == (["F"], 2, 303)


@either
def test_rows_of_a_batch(make: Make) -> None:
    """Consecutive steps, a first and a last in each, and nothing both terminated and truncated."""
    buffer, rng = make(10_000), np.random.default_rng(3)
    for name in range(200):
        buffer.add(episode(str(name), int(rng.integers(1, 200)), terminated=bool(rng.random() < 0.5)))
    for _ in range(50):
        batch = buffer.sample(batch_size_B=16, batch_length_T=64)
        times, first, last = batch["obs"][..., 1], batch["is_first"], batch["is_last"]
        assert times.shape == batch["actions"].shape == batch["rewards"].shape == first.shape == last.shape == (16, 64)
        assert first[:, 0].all()
        assert last[:, -1].all()
        assert not (batch["is_terminated"] & batch["is_truncated"]).any()
        np.testing.assert_array_equal(np.diff(times, axis=1)[~first[:, 1:]], 1)
        assert (times[:, 1:][first[:, 1:]] == 0).all()
        np.testing.assert_array_equal(batch["actions"][~last], times[~last])
        np.testing.assert_array_equal(batch["rewards"], np.maximum(times - 1, 0))
    assert buffer.get_sampled_timesteps() == 50 * 16 * 64


@either
def test_transitions(make: Make) -> None:
    buffer = make(10_000)
    buffer.add([episode("A", 20, terminated=True), episode("B", 30)])
    for drawn in buffer.sample(300, n_step=1, sample_episodes=True):
        start = drawn.get_observations(0)[1]
        assert (drawn.get_actions(0), drawn.get_rewards(0), drawn.get_observations(1)[1]) == (start, start, start + 1)
        assert drawn.is_terminated == (drawn.id_ == "A" and start == 19)


def test_n_step_returns() -> None:
    """As many rewards as there are, up to n; RLlib's own returns more items than were asked for, and says n of all."""
    buffer = ours()
    buffer.add([episode("A", 20, terminated=True), episode("B", 30)])
    drawn = buffer.sample(500, n_step=5, gamma=0.5, sample_episodes=True)
    assert len(drawn) == 500
    cut = 0
    for each in drawn:
        start = int(each.get_observations(0)[1])
        n = min(5, (20 if each.id_ == "A" else 30) - start)
        assert each.get_observations(1)[1] == start + n
        assert each.get_rewards(0) == pytest.approx(sum(0.5**k * (start + k) for k in range(n)))
        assert each.get_extra_model_outputs("n_step", 0) == n
        assert each.get_extra_model_outputs("weights", 0) == 1
        assert each.is_terminated == (each.id_ == "A" and start + n == 20)
        cut += n < 5
    assert cut > 20


def test_long_n_step_over_short_episodes_ends() -> None:
    """RLlib's own would count backwards for ever."""
    buffer = ours()
    buffer.add([episode(str(name), 5, terminated=True) for name in range(10)])
    assert len(buffer.sample(64, n_step=10, sample_episodes=True)) == 64


@pytest.mark.parametrize("capacity", [40, 200])
def test_holds_what_rllibs_holds(capacity: int) -> None:
    """One environment, fragments of any length: the same episodes, indices, counts and metrics after every add."""
    pair, rng, name, start = (EpisodeReplayBuffer(capacity), ours(capacity)), np.random.default_rng(0), 0, 0
    for _ in range(300):
        length, done = int(rng.integers(1, 12)), bool(rng.random() < 0.4)
        for buffer in pair:
            buffer.add(episode(str(name), length, start=start, terminated=done))
        name, start = (name + 1, 0) if done else (name, start + length)
        assert names(pair[0]) == names(pair[1])
        assert pair[0]._indices == pair[1]._indices
        assert pair[0].episode_id_to_index == pair[1].episode_id_to_index
        for count in ("get_num_timesteps", "get_added_timesteps", "get_num_episodes_evicted", "get_num_episodes"):
            assert getattr(pair[0], count)() == getattr(pair[1], count)()
    assert pair[1].get_num_episodes_evicted() > 20
    theirs, mine = (buffer.metrics.peek() for buffer in pair)
    lifetime = {metric for metric in theirs if "lifetime" in metric}
    assert len(lifetime) > 5
    assert {metric: mine[metric] for metric in lifetime} == {metric: theirs[metric] for metric in lifetime}


def test_the_oldest_episode_may_grow_past_the_capacity() -> None:
    """Where RLlib's own raises IndexError: the episode that grows is evicted, and goes on as a new one."""
    buffer = ours(10)
    for fragment in (episode("A", 4), episode("B", 4), episode("A", 4, start=4), episode("B", 1, start=4)):
        buffer.add(fragment)
    assert (names(buffer), len(buffer)) == (["B", "A"], 9)
    np.testing.assert_array_equal(buffer._rows.stamps, [4, 5, 6, 7, 8, 9, 10, 11, 12])
    assert len(draw(buffer, 50)) == 50


def test_one_add_larger_than_the_buffer() -> None:
    buffer = ours(10)
    buffer.add([episode(name, 4, terminated=True) for name in "ABCDE"])
    assert (names(buffer), len(buffer)) == (["D", "E"], 8)
    np.testing.assert_array_equal(buffer._rows.stamps, np.arange(12, 20))
    buffer.add([])
    buffer.add(episode("F", 0))
    assert len(buffer._rows) == len(buffer._indices) == 8


def test_fragments_of_one_episode_in_one_add_follow_each_other() -> None:
    buffer = ours()
    buffer.add([episode("A", 3), episode("A", 3, start=3), episode("A", 2, start=6, terminated=True)])
    np.testing.assert_array_equal(buffer._rows.stamps, np.arange(8))


def test_episodes_as_arrays_are_the_same() -> None:
    lists, arrays = ours(), ours()
    for name in "AB":
        lists.add(episode(name, 30, terminated=True))
        arrays.add(episode(name, 30, terminated=True).to_numpy())
    assert draw(lists, 200, n_step=3) == draw(arrays, 200, n_step=3)


def test_the_generator_fixes_the_draws() -> None:
    stamped = Stamped(ours(120), num_envs=5, fragment=1).fill(300)
    stamped.buffer.rng = np.random.default_rng(1)
    first = draw(stamped.buffer, 100)
    stamped.buffer.rng = np.random.default_rng(1)
    assert draw(stamped.buffer, 100) == first
    assert isinstance(stamped.buffer.rng, np.random.Generator)
    assert draw(stamped.buffer, 100) != first


def test_state_comes_back_with_draws_to_come() -> None:
    one = Stamped(ours(120), num_envs=5, fragment=1).fill(300)
    draw(one.buffer, 10)
    other = ours(120)
    other.add(episode("before", 60))
    other.set_state(copy.deepcopy(one.buffer.get_state()))
    assert draw(other, 100) == draw(one.buffer, 100)
    for fragments in (one.runner.sample(random_actions=True) for _ in range(40)):
        one.buffer.add(fragments)
        other.add(fragments)
    assert draw(other, 100) == draw(one.buffer, 100)
    np.testing.assert_array_equal(other._rows.stamps, one.buffer._rows.stamps)


def test_a_pickle_in_a_state_is_never_read(tmp_path: Path) -> None:
    """Versions before wrote the generator as one: it is refused, and the buffer stays as it was."""

    class Trap:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "sprung"),))

    buffer, other = ours(), ours()
    buffer.add(episode("A", 10, terminated=True))
    other.add(episode("B", 5, terminated=True))
    state = buffer.get_state()
    assert json.loads(json.dumps(state["age_weighted_replay"]["rng"])) == buffer.rng.bit_generator.state
    for rng in (pickle.dumps(Trap()), pickle.dumps(np.random.default_rng(0)), {"bit_generator": "MT19937"}):
        state["age_weighted_replay"]["rng"] = rng
        with pytest.raises(ValueError, match="wrote a pickle, which is not read"):
            other.set_state(state)
    assert not (tmp_path / "sprung").exists()
    assert [one.id_ for one in other.episodes] == ["B"]
    del state["age_weighted_replay"]["rng"]
    other.set_state(state)
    assert [one.id_ for one in other.episodes] == ["A"]


def test_a_state_does_not_change_with_its_buffer() -> None:
    buffer = ours()
    buffer.add(episode("A", 10, terminated=True))
    state = buffer.get_state()
    buffer.add(episode("B", 10, terminated=True))
    assert len(state["_indices"]) == 10


@pytest.mark.parametrize("other", [EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer])
def test_the_state_of_rllibs_own_buffers_can_be_taken_over(other: type[EpisodeReplayBuffer]) -> None:
    """Age is then the order in which the held transitions came."""
    theirs, buffer = other(capacity=40), ours(age_weight=Uniform(), decay_steps=None, min_weight=None)
    for name in "ABC":
        theirs.add(episode(name, 20, terminated=True))
    buffer.set_state(theirs.get_state())
    np.testing.assert_array_equal(buffer._rows.stamps, np.arange(20, 60))
    counts = np.bincount([int(time) for _, time in draw(buffer, 4_000)], minlength=20)
    assert p_value(counts, np.full(20, 1 / 20)) > STRICT
    buffer.add(episode("D", 5, terminated=True))
    assert buffer._rows.stamps[-1] == 64


def test_what_is_wrong_is_said() -> None:
    for options, message in (
        ({"capacity": 0}, "capacity must be a whole number of transitions >= 1, got 0"),
        ({"capacity": 1e6}, "capacity must be a whole number"),
        ({"capacity": 10, "decay_steps": -1}, "decay_steps must be a finite number > 0, got -1"),
        ({"capacity": 10, "age_weight": Uniform(), "min_weight": 0.1}, "has its own numbers: leave out min_weight"),
    ):
        with pytest.raises(ValueError, match=message):
            AgeWeightedEpisodeReplayBuffer(**options)
    with pytest.raises(TypeError, match="alpha"):
        AgeWeightedEpisodeReplayBuffer(10, alpha=0.6)
    with pytest.raises(ValueError, match="nothing is stored yet"):
        ours().sample(1, n_step=1, sample_episodes=True)
    with pytest.raises(ValueError, match="for one agent"):
        ours().add(MultiAgentEpisode())
