"""The frame store against a scripted environment and a list that keeps every observation whole."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neoteny as n
from neoteny.replay import memory
from neoteny.replay.frames import FrameStore

SHAPE = (2, 3)
UNIFORM = n.AgeWeightedSampler(n.Uniform())


class Script:
    """One environment whose every frame is new, with episodes of given lengths that end either way."""

    def __init__(self, rng: np.random.Generator, stack: int, lengths: list[int]) -> None:
        self.rng, self.stack, self.lengths = rng, stack, lengths
        self.reset()

    def frame(self) -> np.ndarray:
        return self.rng.integers(0, 256, SHAPE, dtype=np.uint8)

    def reset(self) -> None:
        first = self.frame()
        self.frames = deque([first] * self.stack, maxlen=self.stack)
        self.left = int(self.rng.choice(self.lengths))

    def step(self) -> dict[str, Any]:
        obs = np.stack(self.frames)
        self.frames.append(self.frame())
        self.left -= 1
        ended = self.left == 0
        truncated = ended and self.rng.random() < 0.5
        row = {
            "obs": obs,
            "action": np.int32(self.rng.integers(18)),
            "reward": float(np.float32(self.rng.normal())),
            "next_obs": np.stack(self.frames),
            "terminated": ended and not truncated,
            "truncated": truncated,
        }
        if ended:
            self.reset()
        return row


def first_step() -> dict[str, Any]:
    return Script(np.random.default_rng(0), 4, [9]).step()


def pixel_buffer(
    capacity: int, stack: int = 4, num_envs: int = 1, finals: int | None = None, **options: Any
) -> n.ReplayBuffer:
    fields = {
        "obs": n.Frames(SHAPE, stack, finals),
        "action": n.Field((), np.int32),
        "reward": (),
        "terminated": n.Field((), np.bool_),
        "truncated": n.Field((), np.bool_),
    }
    return n.ReplayBuffer(capacity, fields, options.pop("sampler", UNIFORM), num_envs=num_envs, **options)


def play(buffer: n.ReplayBuffer, scripts: list[Script], ticks: int) -> list[tuple[int, dict[str, Any]]]:
    """Every transition ever added, in order, with its environment."""
    added = []
    for _ in range(ticks):
        rows = [script.step() for script in scripts]
        buffer.add(**{name: np.stack([row[name] for row in rows]) for name in rows[0]})
        added += list(enumerate(rows))
    return added


def naive_n_step(added: list[tuple[int, dict[str, Any]]], start: int, num_envs: int, steps: int) -> dict[str, Any]:
    total, k, at = 0.0, 0, start
    while True:
        row = added[at][1]
        total += 0.9**k * row["reward"]
        k += 1
        if row["terminated"] or row["truncated"] or k == steps or at + num_envs >= len(added):
            break
        at += num_envs
    first = added[start][1]
    return {**row, "obs": first["obs"], "action": first["action"], "reward": total, "discount": 0.9**k}


@given(
    st.sampled_from([1, 5]),
    st.integers(0, 40),
    st.integers(1, 150),
    st.integers(1, 5),
    st.sampled_from([[1], [2], [7], [1, 2, 7], [1, 30], [60]]),
    st.sampled_from([1, 3]),
    st.sampled_from([None, 1, 6]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=150)
def test_every_transition_is_what_was_added(
    num_envs: int, more: int, ticks: int, stack: int, lengths: list[int], steps: int, finals: int | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    buffer = pixel_buffer(num_envs + more, stack, num_envs, finals, n_step=steps, gamma=0.9)
    added = play(buffer, [Script(rng, stack, lengths) for _ in range(num_envs)], ticks)
    assert 0 < buffer.num_stored <= buffer.capacity
    batch = buffer.gather(np.arange(buffer.num_stored))
    for position in range(buffer.num_stored):
        expected = naive_n_step(added, len(added) - 1 - position, num_envs, steps)
        for name, value in expected.items():
            got = batch[name][position]
            if name in ("reward", "discount"):
                np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(got, value, err_msg=f"{name} at position {position}")


def test_with_room_for_every_end_nothing_leaves_early() -> None:
    buffer = pixel_buffer(200, finals=100)
    play(buffer, [Script(np.random.default_rng(0), 4, [2])], 999)
    assert buffer.num_stored == 200


def test_when_final_frames_run_out_the_oldest_leave_early() -> None:
    """Episodes of 2 and room for 10 ends: the newest 20 or so stay, and the samplers see just those."""
    buffer = pixel_buffer(200, finals=10, seed=0)
    added = play(buffer, [Script(np.random.default_rng(0), 4, [2])], 999)
    assert 19 <= buffer.num_stored <= 21
    batch = buffer.sample(500)
    assert batch.ages.max() <= buffer.num_stored
    for row, number in enumerate(batch.numbers[:50]):
        np.testing.assert_array_equal(batch["next_obs"][row], added[number][1]["next_obs"])


@pytest.mark.parametrize("schedule", [None, n.LinearDecay(9)], ids=str)
def test_priorities_of_what_left_early_are_never_drawn(schedule: Any) -> None:
    """One long episode, then short ones that take its final frames: a handful stay of a thousand."""
    buffer = pixel_buffer(1000, finals=1, sampler=n.PrioritizedSampler(schedule), seed=0)
    play(buffer, [Script(np.random.default_rng(0), 4, [990])], 990)
    buffer.update_priorities(buffer.sample(500), np.full(500, 100.0))
    play(buffer, [Script(np.random.default_rng(1), 4, [1])], 3)
    assert buffer.num_stored == 1
    assert set(buffer.sample(256).positions.tolist()) == {0}
    np.testing.assert_allclose(buffer.law(), [1.0])


def test_restoring_less_into_more() -> None:
    buffer, twin = pixel_buffer(50, finals=5, seed=0), pixel_buffer(50, finals=5, seed=0)
    script = Script(np.random.default_rng(0), 4, [3])
    play(buffer, [script], 3)
    state = buffer.state()
    play(buffer, [Script(np.random.default_rng(1), 4, [2])], 200)
    for each in (buffer, twin):
        each.restore(state)
        play(each, [Script(np.random.default_rng(2), 4, [2])], 2)
        assert each.num_stored == 5
    for name in ("obs", "next_obs"):
        np.testing.assert_array_equal(buffer.gather(np.arange(5))[name], twin.gather(np.arange(5))[name])


@pytest.mark.parametrize(
    "sampler", [n.AgeWeightedSampler(n.LinearDecay(9, 0.1)), n.PrioritizedSampler(n.LinearDecay(9))], ids=str
)
@pytest.mark.parametrize("ticks", [5, 70])
def test_restored_it_samples_the_same_bits(ticks: int, sampler: Any) -> None:
    def new(seed: int) -> n.ReplayBuffer:
        return pixel_buffer(20, 4, 2, 6, sampler=sampler, seed=seed)

    one, other = new(0), new(1)
    scripts = [Script(np.random.default_rng(env), 4, [1, 7]) for env in range(2)]
    play(one, scripts, ticks)
    one.sample(9)
    other.restore(one.state())
    rows = [script.step() for script in scripts]
    for buffer in (one, other):
        buffer.add(**{name: np.stack([row[name] for row in rows]) for name in rows[0]})
    a, b = one.sample(30), other.sample(30)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
    assert one.statistics() == other.statistics()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"obs": np.zeros((4, 2, 2), np.uint8)}, ValueError, r"'obs' must have shape \(1, 4, 2, 3\)"),
        ({"next_obs": np.zeros((4, 2, 3))}, TypeError, "'next_obs' holds uint8 frames, got dtype float64"),
        ({"obs": np.arange(24, dtype=np.uint8).reshape(4, 2, 3)}, ValueError, "must repeat the first frame"),
        ({"next_obs": first_step()["obs"][::-1].copy() + np.uint8(1)}, ValueError, "'obs' moved on by one frame"),
        ({"reward": np.nan}, ValueError, "'reward' of environment 0 holds nan"),
    ],
)
def test_a_bad_add_is_refused_and_changes_nothing(change: dict[str, Any], error: type[Exception], message: str) -> None:
    buffer = pixel_buffer(10)
    with pytest.raises(error, match=message):
        buffer.add(**{**first_step(), **change})
    assert buffer.clock == 0
    buffer.add(**first_step())
    np.testing.assert_array_equal(buffer.sample(1)["obs"][0], first_step()["obs"])


def test_a_reset_that_was_not_reported_is_refused() -> None:
    """What happens when the reset's observation is passed as next_obs, or an autoreset goes unnoticed."""
    buffer = pixel_buffer(10)
    buffer.add(**first_step())
    with pytest.raises(ValueError, match="is not the 'next_obs' of the step before"):
        buffer.add(**Script(np.random.default_rng(5), 4, [9]).step())
    with pytest.raises(ValueError, match="missing: next_obs"):
        buffer.add(obs=first_step()["obs"], reward=0.0)
    with pytest.raises(TypeError, match="one step at a time"):
        buffer.extend(reward=[0.0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image": n.Frames()}, "given once, as 'obs'"),
        ({"obs": n.Frames(), "next_obs": (3,)}, "given once, as 'obs'"),
        ({"obs": n.Frames(), "terminated": ()}, "missing: truncated"),
    ],
)
def test_fields_that_frames_do_not_go_with_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        n.ReplayBuffer(10, fields, UNIFORM)


def test_bad_frames_are_refused() -> None:
    for make, message in [
        (lambda: n.Frames(stack=0), "stack must be in 1..255, got 0"),
        (lambda: n.Frames(()), r"shape must have sides >= 1, got \(\)"),
        (lambda: n.Frames(finals=0), "finals must be >= 1, got 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


def test_a_million_atari_transitions_take_at_most_7_5_gb(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 1_000_000 * 4 * 5
    assert FrameStore.num_bytes(n.Frames(), 1_000_000, 8) + rows <= 7.5e9
    monkeypatch.setattr(memory, "available_bytes", lambda: int(7e9))
    with pytest.raises(MemoryError, match=r"1,000,000 transitions needs 7.4\d GB and 7.00 GB are free"):
        n.ReplayBuffer(1_000_000, {"obs": n.Frames(), "reward": (), "terminated": (), "truncated": ()}, UNIFORM)


def test_the_bytes_reckoned_are_the_bytes_held() -> None:
    store = FrameStore(n.Frames(SHAPE, 4), 1000, 3)
    held = store.frames.nbytes + store.depth.nbytes + store.final.nbytes + store.ended_at.nbytes
    assert FrameStore.num_bytes(n.Frames(SHAPE, 4), 1000, 3) == held
