"""The buffer against naive twins: a deque for the ring, a list for n-step returns."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neoteny as n
from neoteny.replay import memory
from oracles import STRICT, StampedRing, p_value

FIELDS = n.transition_fields((3,), (2,))
UNIFORM = n.AgeWeightedSampler(n.Uniform())


def transition(stamp: int, num_envs: int = 1) -> dict[str, Any]:
    obs = np.stack([np.full(3, stamp + env / 10) for env in range(num_envs)])
    flags = np.array([(stamp + env) % 5 == 0 for env in range(num_envs)])
    return {
        "obs": obs,
        "action": obs[:, :2] * 2,
        "reward": obs[:, 0],
        "next_obs": obs + 1,
        "terminated": flags,
        "truncated": ~flags,
    }


@given(st.integers(1, 5), st.integers(0, 25), st.integers(1, 60))
def test_holds_what_a_deque_holds(num_envs: int, more: int, ticks: int) -> None:
    capacity = num_envs + more
    buffer = n.ReplayBuffer(capacity, FIELDS, UNIFORM, num_envs=num_envs)
    twin: deque[list[float]] = deque(maxlen=capacity)
    for tick in range(ticks):
        values = transition(tick, num_envs)
        buffer.add(**values)
        for env in range(num_envs):
            twin.append([*values["obs"][env], *values["action"][env], values["reward"][env]])
    assert (len(buffer), buffer.clock) == (len(twin), num_envs * ticks)
    held = buffer.gather(np.arange(len(buffer)))
    newest_first = np.array(twin, np.float32)[::-1]
    np.testing.assert_array_equal(np.column_stack([held["obs"], held["action"], held["reward"]]), newest_first)


@given(st.integers(1, 4), st.integers(4, 30), st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=200)
def test_n_step_equals_a_naive_walk(num_envs: int, capacity: int, ticks: int, steps: int, seed: int) -> None:
    """Every stored row: rewards summed within one environment up to an end, the head or n; its gamma^k."""
    rng = np.random.default_rng(seed)
    buffer = n.ReplayBuffer(capacity, FIELDS, UNIFORM, num_envs=num_envs, n_step=steps, gamma=0.9)
    written: list[list[dict[str, Any]]] = [[] for _ in range(num_envs)]
    order: list[tuple[int, int]] = []
    for tick in range(ticks):
        values = transition(tick, num_envs)
        values["reward"] = rng.normal(size=num_envs)
        values["terminated"], values["truncated"] = rng.random((2, num_envs)) < 0.15
        buffer.add(**values)
        for env in range(num_envs):
            written[env].append({name: value[env] for name, value in values.items()})
            order.append((env, tick))
    for position in range(len(buffer)):
        env, tick = order[-1 - position]
        total, k = 0.0, 0
        while True:
            row = written[env][tick + k]
            total += 0.9**k * row["reward"]
            k += 1
            if row["terminated"] or row["truncated"] or k == steps or tick + k == ticks:
                break
        got = buffer.gather(np.array([position]))
        np.testing.assert_allclose(got["reward"], total, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got["discount"], 0.9**k, rtol=1e-6)
        np.testing.assert_array_equal(got["obs"][0], written[env][tick]["obs"].astype(np.float32))
        np.testing.assert_array_equal(got["action"][0], written[env][tick]["action"].astype(np.float32))
        for name in ("next_obs", "terminated", "truncated"):
            np.testing.assert_array_equal(got[name][0], np.float32(row[name]))


@pytest.mark.parametrize("num_envs", [1, 7])
@pytest.mark.parametrize("ticks", [9, 60])
def test_samples_follow_algorithm_1_by_their_stamps(num_envs: int, ticks: int) -> None:
    """Whether drawn ahead (full) or not, in batches of changing size."""
    capacity = 35 * num_envs
    buffer = n.ReplayBuffer(
        capacity, {"slot": (), "age_now": ()}, n.AgeWeightedSampler(n.LinearDecay(20, 0.1)), num_envs=num_envs, seed=0
    )
    ring = StampedRing(capacity, num_envs, ticks)
    for tick in range(ticks):
        slots = (tick * num_envs + np.arange(num_envs)) % capacity
        buffer.add(slot=slots, age_now=np.full(num_envs, ring.now - tick * num_envs))
    batches = [buffer.sample(size) for size in (256, 1000, 7, 20_000) * 6]
    drawn = np.concatenate([batch["slot"] for batch in batches]).astype(int)
    expected = ring.algorithm_1(lambda age: max(0.1, 1 - age / 20))
    assert p_value(np.bincount(drawn, minlength=capacity), expected) > STRICT
    for batch in batches:
        np.testing.assert_array_equal(batch.slots, batch["slot"])
        np.testing.assert_array_equal(batch.ages, batch["age_now"])


def test_int32_is_kept_to_the_bit() -> None:
    values = np.array([[-1, 2**31 - 1, -(2**31), 0, 16_777_217]])
    buffer = n.ReplayBuffer(3, {"code": n.Field((5,), np.int32), "reward": ()}, UNIFORM)
    buffer.add(code=values, reward=0.5)
    batch = buffer.sample(2)
    assert batch["code"].dtype == np.int32
    np.testing.assert_array_equal(batch["code"], np.repeat(values, 2, axis=0))


def test_one_environment_may_leave_its_axis_out() -> None:
    buffer = n.ReplayBuffer(3, FIELDS, UNIFORM)
    buffer.add(obs=[1, 2, 3], action=[0.5, 0.5], reward=1, next_obs=[2, 3, 4], terminated=False, truncated=True)
    batch = buffer.sample(4)
    assert batch["obs"].shape == (4, 3)
    assert batch["reward"].tolist() == [1] * 4
    assert (batch["terminated"].tolist(), batch["truncated"].tolist()) == ([0] * 4, [1] * 4)
    assert dict(batch).keys() == FIELDS.keys()


def test_extend_is_many_adds() -> None:
    one, many = (n.ReplayBuffer(20, FIELDS, UNIFORM, num_envs=3, seed=0) for _ in range(2))
    ticks = [transition(tick, 3) for tick in range(15)]
    for values in ticks:
        one.add(**values)
    many.extend(**{name: np.stack([tick[name] for tick in ticks[:4]]) for name in FIELDS})
    many.extend(**{name: np.stack([tick[name] for tick in ticks[4:]]) for name in FIELDS})
    np.testing.assert_array_equal(one.sample(50).rows, many.sample(50).rows)
    assert (one.clock, one.head) == (many.clock, many.head)
    with pytest.raises(
        ValueError, match=r"'reward' must have shape \(2, 3\), steps and environments first, got \(2,\)"
    ):
        many.extend(**{name: np.stack([tick[name] for tick in ticks[:2]])[:, 0] for name in ("reward",)})


def test_sampling_into_an_array() -> None:
    buffer = filled()
    out = np.empty((8, buffer.layout.width), np.float32)
    batch = buffer.sample(8, out)
    assert batch.rows is out
    assert np.shares_memory(batch["obs"], out)


def filled(capacity: int = 10, ticks: int = 25, **options: Any) -> n.ReplayBuffer:
    buffer = n.ReplayBuffer(capacity, FIELDS, n.AgeWeightedSampler(n.LinearDecay(9, 0.1)), seed=0, **options)
    for tick in range(ticks):
        buffer.add(**transition(tick))
    return buffer


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"obs": np.zeros((1, 4))}, ValueError, r"'obs' must have shape \(1, 3\), environments first, got \(1, 4\)"),
        ({"obs": np.zeros((2, 3))}, ValueError, r"'obs' must have shape \(1, 3\), environments first, got \(2, 3\)"),
        ({"obs": np.array([["a", "b", "c"]])}, TypeError, "'obs' is a float32 field, got dtype <U1"),
        ({"obs": np.zeros((1, 3), complex)}, TypeError, "'obs' is a float32 field, got dtype complex128"),
        ({"terminated": np.zeros(1)}, TypeError, "'terminated' is a bool field, got dtype float64"),
        ({"obs": [[0, np.nan, 0]]}, ValueError, "'obs' of environment 0 holds nan"),
        ({"next_obs": [[0, 0, np.inf]]}, ValueError, "'next_obs' of environment 0 holds inf"),
        ({"reward": [1e300]}, ValueError, "'reward' of environment 0 holds inf; values must be finite in float32"),
        ({"colour": [1.0]}, ValueError, "unknown: colour"),
    ],
)
def test_a_bad_add_is_refused_and_changes_nothing(change: dict[str, Any], error: type[Exception], message: str) -> None:
    buffer = filled()
    before = buffer.state()
    with pytest.raises(error, match=message):
        buffer.add(**{**transition(99), **change})
    after = buffer.state()
    assert after["clock"] == before["clock"]
    np.testing.assert_array_equal(after["transitions"]["rows"], before["transitions"]["rows"])


def test_a_missing_field_and_an_integer_too_large_are_refused() -> None:
    buffer = n.ReplayBuffer(3, {"code": n.Field((), np.int32), "reward": ()}, UNIFORM)
    with pytest.raises(ValueError, match="missing: reward"):
        buffer.add(code=3)
    with pytest.raises(ValueError, match="'code' must fit int32, got 2147483648"):
        buffer.add(code=2**31, reward=0)
    with pytest.raises(TypeError, match="'code' is a int32 field, got dtype float64"):
        buffer.add(code=1.5, reward=0)


def test_the_finite_check_can_be_turned_off() -> None:
    buffer = n.ReplayBuffer(3, {"reward": ()}, UNIFORM, check_finite=False)
    buffer.add(reward=np.nan)
    assert np.isnan(buffer.sample(1)["reward"]).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"capacity": 0}, ValueError, "capacity must be at least num_envs >= 1, got 0 and 1"),
        ({"capacity": 3, "num_envs": 4}, ValueError, "capacity must be at least num_envs >= 1, got 3 and 4"),
        ({"fields": {}}, ValueError, "at least one field"),
        ({"fields": {"a": (0,)}}, ValueError, r"sides must be >= 1, got shape \(0,\)"),
        ({"n_step": 0}, ValueError, "n_step must be >= 1, got 0"),
        ({"n_step": 3}, ValueError, "n_step=3 needs gamma"),
        ({"gamma": 1.5}, ValueError, r"gamma must be in \[0, 1\], got 1.5"),
        ({"n_step": 3, "gamma": 0.9, "fields": {"reward": ()}}, ValueError, "missing: terminated, truncated"),
        ({"n_step": 3, "gamma": 0.9, "fields": {**FIELDS, "reward": (2,)}}, ValueError, r"'reward' to be one number"),
        ({"gamma": 0.9, "fields": {"discount": ()}}, ValueError, "makes the field 'discount' itself"),
    ],
)
def test_a_bad_buffer_is_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"capacity": 10, "fields": FIELDS, "sampler": UNIFORM, **options}
    with pytest.raises(error, match=message):
        n.ReplayBuffer(**arguments)


def test_fields_of_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="float32, int32 or bool, got float64"):
        n.Field((3,), np.float64)


def test_an_empty_buffer_cannot_be_sampled() -> None:
    buffer = n.ReplayBuffer(10, FIELDS, UNIFORM)
    with pytest.raises(ValueError, match="nothing is stored yet"):
        buffer.sample(4)
    with pytest.raises(ValueError, match="nothing is stored yet"):
        buffer.statistics()


def test_what_cannot_fit_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(MemoryError, match=r"10,000,000,000,000 transitions needs 440000.00 GB and .* GB are free"):
        n.ReplayBuffer(10**13, FIELDS, UNIFORM)


def test_free_memory_is_read_from_the_cgroup_too(tmp_path: Any) -> None:
    paths = [tmp_path / name for name in ("max", "current", "stat")]
    for path, text in zip(paths, ("1000\n", "900\n", "anon 5\ninactive_file 50\n"), strict=True):
        path.write_text(text)
    assert memory._cgroup(*map(str, paths)) == 150
    paths[0].write_text("max\n")
    assert memory._cgroup(*map(str, paths)) is None


def test_unreached_rows_cost_nothing() -> None:
    def resident() -> int:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024

    before = resident()
    buffer = n.ReplayBuffer(1_000_000, {"obs": (250,)}, UNIFORM)  # 1 GB
    buffer.add(obs=np.ones(250))
    assert resident() - before < 50e6


@pytest.mark.parametrize("ticks", [4, 25])
def test_restored_it_samples_the_same_bits(ticks: int) -> None:
    """Part full and drawing ahead, in the middle of what was drawn ahead."""
    original = filled(ticks=ticks)
    original.sample(7)
    state = original.state()
    json.dumps(state, default=lambda value: value.tolist())  # arrays apart it is JSON, and no pickle
    other = n.ReplayBuffer(10, FIELDS, n.AgeWeightedSampler(n.LinearDecay(9, 0.1)), seed=99)
    other.restore(state)
    for tick in range(20):
        np.testing.assert_array_equal(original.sample(5).rows, other.sample(5).rows)
        assert original.statistics() == other.statistics()
        for buffer in (original, other):
            buffer.add(**transition(100 + tick))


def test_a_state_is_not_touched_by_later_adds() -> None:
    buffer = filled()
    state = buffer.state()
    rows = state["transitions"]["rows"].copy()
    buffer.add(**transition(77))
    np.testing.assert_array_equal(state["transitions"]["rows"], rows)


def test_the_state_of_another_shape_is_refused() -> None:
    state = filled().state()
    for other, message in [
        (filled(capacity=11), "this buffer's capacity is 11, the state's is 10"),
        (filled(gamma=0.9), "this buffer's fields is"),
    ]:
        before = other.state()
        with pytest.raises(ValueError, match=message):
            other.restore(state)
        np.testing.assert_array_equal(other.state()["transitions"]["rows"], before["transitions"]["rows"])


def test_the_state_of_another_law_is_refused() -> None:
    """What was drawn ahead under one law must not be served under another."""
    window = filled().with_sampler(n.AgeWeightedSampler(n.Window(3)), seed=0)
    window.sample(4)
    with pytest.raises(ValueError, match=r"this buffer's sampler is AgeWeightedSampler\(LinearDecay"):
        filled().restore(window.state())


def test_a_table_is_the_same_bits_however_it_grew() -> None:
    """Or a resumed run would differ from an uninterrupted one in a draw out of a million."""
    grown, fresh = n.AgeWeightedSampler(n.GeometricDecay(1e-3)), n.AgeWeightedSampler(n.GeometricDecay(1e-3))
    for size in (10, 3_000, 17_000, 90_000):
        grown.probabilities(size)
    np.testing.assert_array_equal(grown.probabilities(100_000), fresh.probabilities(100_000))


def test_recent_draws_are_the_most_recent() -> None:
    buffer = n.ReplayBuffer(10_000, {"x": ()}, n.AgeWeightedSampler(n.Uniform()), seed=0)
    buffer.extend(x=np.zeros(10_000))
    buffer.sample(8_192)
    old = [buffer.sample(5_000).ages for _ in range(2)]
    assert buffer.statistics()["age_mean"] == pytest.approx(np.concatenate(old)[-8_192:].mean())


def test_what_is_not_there_cannot_be_asked_for() -> None:
    buffer = filled(ticks=3, gamma=0.9)
    with pytest.raises(ValueError, match=r"positions must be in 0..2, got 3 to 3"):
        buffer.gather(np.array([3]))
    with pytest.raises(ValueError, match="makes the field 'discount' itself"):
        buffer.add(**transition(1), discount=0.5)
    with pytest.raises(ValueError, match="nothing is stored yet"):
        n.ReplayBuffer(3, {"x": ()}, UNIFORM).law()
    with pytest.raises(ValueError, match=r"'x' must have shape \(1, 1\), steps and environments first, got \(\)"):
        n.ReplayBuffer(3, {"x": ()}, UNIFORM).extend(x=1.0)


def test_two_seeds_differ_and_one_repeats() -> None:
    a, b, c = (
        filled().with_sampler(n.AgeWeightedSampler(n.LinearDecay(9)), seed=s).sample(32).slots for s in (1, 1, 2)
    )
    assert a.tolist() == b.tolist() != c.tolist()


def test_statistics_by_hand() -> None:
    buffer = filled()
    assert np.isnan(buffer.statistics()["age_mean"])
    ages = np.concatenate([buffer.sample(64).ages for _ in range(20)])
    statistics = buffer.statistics()
    weights = np.maximum(0.1, 1 - np.arange(1, 11) / 9)
    p = weights / weights.sum()
    assert statistics["effective_sample_size"] == pytest.approx(1 / (p**2).sum())
    assert statistics["entropy"] == pytest.approx(-(p * np.log(p)).sum())
    assert statistics["age_mean"] == pytest.approx(ages.mean())
    assert (statistics["age_p50"], statistics["age_p95"]) == tuple(np.percentile(ages, [50, 95]))


def test_statistics_follow_the_size() -> None:
    buffer = n.ReplayBuffer(10, {"x": ()}, UNIFORM)
    for size in range(1, 15):
        buffer.add(x=0.0)
        assert buffer.statistics()["effective_sample_size"] == pytest.approx(min(size, 10))


def test_a_view_shares_the_transitions_and_not_the_draws() -> None:
    buffer = filled()
    uniform = buffer.with_sampler(UNIFORM, seed=3)
    twin = filled()
    uniform.sample(1000)
    np.testing.assert_array_equal(buffer.sample(40).slots, twin.sample(40).slots)
    buffer.add(**transition(500))
    assert uniform.clock == buffer.clock
    assert 500 in uniform.sample(200)["reward"]


def test_a_buffer_shorter_than_the_schedule_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="still changes up to age 72,000, and this buffer forgets at 1,000"):
        n.ReplayBuffer(1_000, FIELDS, n.AgeWeightedSampler(n.LinearDecay()))


def test_a_buffer_and_a_batch_say_what_they_hold_in_a_line() -> None:
    fields = n.transition_fields((3,), (), np.int32)
    buffer = n.ReplayBuffer(5_000, fields, n.AgeWeightedSampler(n.LinearDecay(500)), num_envs=4)
    said = "obs (3,), reward, next_obs (3,), terminated bool, truncated bool, action int32"
    assert repr(buffer) == (
        f"ReplayBuffer(0 of 5,000 transitions of 4 environments: {said}; "
        "AgeWeightedSampler(LinearDecay(decay_steps=500, min_weight=0.1)))"
    )
    buffer = n.ReplayBuffer(2_000, {"obs": (3,)}, n.PrioritizedSampler())
    buffer.extend(obs=np.zeros((1_500, 3)))
    assert repr(buffer).startswith("ReplayBuffer(1,500 of 2,000 transitions: obs (3,); PrioritizedSampler(")
    assert repr(buffer.sample(1_024)) == "Batch(1,024 transitions: obs (3,), with importance weights)"
    flag = n.Field((), np.bool_)
    fields = {"obs": n.Frames((8, 8), 2), "reward": (), "terminated": flag, "truncated": flag}
    buffer = n.ReplayBuffer(100, fields, n.AgeWeightedSampler(n.Uniform()), n_step=3, gamma=0.9)
    said = "reward, terminated bool, truncated bool, discount, obs (2, 8, 8) uint8"
    assert repr(buffer) == f"ReplayBuffer(0 of 100 transitions: {said}, 3-step; AgeWeightedSampler(Uniform()))"
    first = np.zeros((2, 8, 8), np.uint8)
    buffer.add(obs=first, reward=1.0, next_obs=first, terminated=False, truncated=False)
    assert repr(buffer.sample(4)) == f"Batch(4 transitions: {said}, next_obs (2, 8, 8) uint8)"


def test_the_warning_points_at_the_line_that_makes_the_buffer() -> None:
    with pytest.warns(UserWarning, match="still changes") as caught:
        buffer = n.ReplayBuffer(1_000, {"x": ()}, n.AgeWeightedSampler(n.LinearDecay()))
    with pytest.warns(UserWarning, match="still changes") as again:
        buffer.with_sampler(n.AgeWeightedSampler(n.LinearDecay()))
    assert {warning.filename for warning in [*caught, *again]} == {__file__}
