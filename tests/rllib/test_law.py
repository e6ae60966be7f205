"""What RLlib's own sample returns, against Algorithm 1 over the stamps that the environments wrote."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer

from neoteny import ExponentialDecay, Window
from neoteny.integrations.rllib import AgeWeightedEpisodeReplayBuffer
from oracles import STRICT, p_value, weight_by_hand
from ticking import Stamped, draw, key

T, W_MIN = 60, 0.1
DRAWS = 15_000
BUFFERS = {
    "part full": {"num_envs": 1, "fragment": 1, "transitions": 70},
    "wrapped": {"num_envs": 1, "fragment": 1, "transitions": 450},
    "wrapped, fragments of 4": {"num_envs": 1, "fragment": 4, "transitions": 450},
    "part full, 5 envs": {"num_envs": 5, "fragment": 1, "transitions": 70},
    "wrapped, 5 envs": {"num_envs": 5, "fragment": 1, "transitions": 450},
    "wrapped, 5 envs, fragments of 4": {"num_envs": 5, "fragment": 4, "transitions": 450},
    "wrapped, 16 envs": {"num_envs": 16, "fragment": 1, "transitions": 450},
}


def swd(age: int) -> float:
    return max(W_MIN, 1 - age / T)


def ours(**options: object) -> AgeWeightedEpisodeReplayBuffer:
    buffer = AgeWeightedEpisodeReplayBuffer(120, **(options or {"decay_steps": T, "min_weight": W_MIN}))
    buffer.rng = np.random.default_rng(0)
    return buffer


def fill(buffer: EpisodeReplayBuffer, num_envs: int, fragment: int, transitions: int) -> Stamped:
    return Stamped(buffer, num_envs=num_envs, fragment=fragment).fill(transitions)


@pytest.mark.parametrize("case", BUFFERS.values(), ids=BUFFERS.keys())
def test_draws_follow_algorithm_1(case: dict[str, int]) -> None:
    stamped = fill(ours(), **case)
    assert (stamped.buffer.get_num_episodes_evicted() > 0) == (case["transitions"] > 120)
    assert p_value(stamped.counts(draw(stamped.buffer, DRAWS)), stamped.algorithm_1(swd)) > STRICT


@pytest.mark.parametrize("case", BUFFERS.values(), ids=BUFFERS.keys())
def test_stamps_are_the_real_ones(case: dict[str, int]) -> None:
    """With episodes longer than a fragment no vector step is misplaced, resets included."""
    stamped = fill(ours(), **case)
    buffer, sorted_ticks = stamped.buffer, np.sort(stamped.all_ticks)
    ticks = [buffer.episodes[e - buffer._num_episodes_evicted].get_observations(t)[1] for e, t in buffer._indices]
    np.testing.assert_array_equal(buffer._rows.stamps, np.searchsorted(sorted_ticks, ticks))


@pytest.mark.parametrize("n_step", [3, (1, 5)])
def test_n_step_does_not_change_the_law(n_step: int | tuple[int, int]) -> None:
    stamped = fill(ours(), **BUFFERS["wrapped, 5 envs"])
    drawn = draw(stamped.buffer, DRAWS, n_step=n_step)
    assert len(drawn) == DRAWS
    assert p_value(stamped.counts(drawn), stamped.algorithm_1(swd)) > STRICT


@dataclass(frozen=True)
class Users:
    """A schedule that is not ours."""

    def weight(self, age: np.ndarray) -> np.ndarray:
        return 1.0 / (10 + age)


@dataclass(frozen=True)
class UsersOfTheSize:
    """Another, which needs the number held: its oldest half is never drawn."""

    uses = ("num_stored",)

    def weight(self, age: np.ndarray, num_stored: int) -> np.ndarray:
        return (age <= num_stored / 2).astype(float)


@pytest.mark.parametrize("schedule", [ExponentialDecay(30), Window(40), Users(), UsersOfTheSize()], ids=str)
def test_any_schedule(schedule: object) -> None:
    stamped = fill(ours(age_weight=schedule), **BUFFERS["wrapped, 5 envs"])
    held = len(stamped.held())

    def weight(age: int) -> float:
        if isinstance(schedule, Users):
            return 1 / (10 + age)
        if isinstance(schedule, UsersOfTheSize):
            return float(age <= held / 2)
        return weight_by_hand(schedule, age, held)

    assert p_value(stamped.counts(draw(stamped.buffer, DRAWS)), stamped.algorithm_1(weight)) > STRICT


def test_rows_and_sequences_begin_by_the_same_law() -> None:
    """The two other ways of RLlib's sample: rows of a batch, and sequences for recurrent modules."""
    stamped = fill(ours(), **BUFFERS["wrapped, 5 envs"])
    law = stamped.algorithm_1(swd)
    rows = stamped.buffer.sample(num_items=DRAWS, batch_length_T=1)["obs"][:, 0]
    assert p_value(stamped.counts([key(obs) for obs in rows]), law) > STRICT
    sequences = []
    for _ in range(DRAWS // 100):
        drawn = stamped.buffer.sample(100, batch_length_T=3, n_step=1, sample_episodes=True)
        sequences += [key(sequence.get_observations(0)) for sequence in drawn]
    assert p_value(stamped.counts(sequences), law) > STRICT


def test_the_chi_square_can_fail() -> None:
    """RLlib's own buffer fails it, and so does age read from position."""
    case = BUFFERS["wrapped, 16 envs"]
    uniform = fill(EpisodeReplayBuffer(120), **case)
    uniform.buffer.rng = np.random.default_rng(0)
    assert p_value(uniform.counts(draw(uniform.buffer, DRAWS)), uniform.algorithm_1(swd)) < STRICT
    by_position = fill(ours(), **case)
    rows = by_position.buffer._rows
    rows.restore({"stamps": np.arange(len(rows)), "owners": rows.owners.copy(), "newest": len(rows) - 1})
    assert p_value(by_position.counts(draw(by_position.buffer, DRAWS)), by_position.algorithm_1(swd)) < STRICT
