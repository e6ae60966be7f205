"""States that cannot be right are refused in a sentence, and the buffer is as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import neoteny as n
from neoteny.replay.combined import CombinedSampler
from neoteny.replay.frames import Frames
from neoteny.replay.stamps import StampedRows
from neoteny.replay.storage import Field

FIELDS = {"obs": (3,), "choice": Field((), np.int32), "reward": (), "terminated": Field((), bool)}


def rows(capacity: int = 20, ticks: int = 33, sampler: Any = None, **options: Any) -> n.ReplayBuffer:
    made = n.ReplayBuffer(capacity, FIELDS, sampler or n.AgeWeightedSampler(n.LinearDecay(9, 0.1)), seed=0, **options)
    for tick in range(ticks):
        made.add(obs=np.full(3, tick), choice=-tick, reward=tick / 7, terminated=tick % 5 == 0)
    return made


def pixels(capacity: int = 20, ticks: int = 33) -> n.ReplayBuffer:
    fields: dict[str, Any] = {"obs": Frames((4, 4), 3, finals=9), "terminated": Field((), bool)}
    fields["truncated"] = Field((), bool)
    made = n.ReplayBuffer(capacity, fields, n.AgeWeightedSampler(n.LinearDecay(9, 0.1)), seed=0)
    obs = np.zeros((3, 4, 4), np.uint8)
    for tick in range(ticks):
        later = np.concatenate([obs[1:], np.full((1, 4, 4), tick, np.uint8)])
        made.add(obs=obs, next_obs=later, terminated=tick % 7 == 6, truncated=False)
        obs = np.repeat(later[-1:], 3, 0) if tick % 7 == 6 else later
    return made


def by_priority(ticks: int = 33, schedule: Any = None) -> n.ReplayBuffer:
    made = rows(ticks=ticks, sampler=n.PrioritizedSampler(schedule))
    made.update_priorities(made.sample(8), np.arange(8.0))
    return made


BUFFERS: dict[str, Callable[[], n.ReplayBuffer]] = {
    "rows": rows,
    "part full": lambda: rows(ticks=7),
    "pixels": pixels,
    "priority": by_priority,
    "priority, part full": lambda: by_priority(7),
    "priority by age": lambda: by_priority(33, n.LinearDecay(9)),
    "combined": lambda: rows(sampler=CombinedSampler()),
}


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and name != "rng":
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def with_leaf(tree: Any, path: tuple[str, ...], value: Any) -> Any:
    tree = copy.deepcopy(tree)
    inner = tree
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return tree


def without(tree: Any, path: tuple[str, ...]) -> Any:
    tree = copy.deepcopy(tree)
    inner = tree
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return tree


def wrong_values(value: Any) -> Iterator[Any]:
    """What a damaged or foreign file could have in the place of `value`."""
    yield "text"
    yield [value]
    if isinstance(value, np.ndarray):
        yield value.astype(np.complex128)
        yield value[None]
        yield value.tolist()
        if value.size:
            yield np.concatenate([value, value[:1]])
            yield value[:1] if len(value) > 1 else value[:0]  # would be broadcast
            if value.dtype.kind == "f":
                yield np.full_like(value, np.nan)
                yield np.where(np.arange(value.size).reshape(value.shape) == 0, np.inf, value)
    elif isinstance(value, int):
        yield from (-1, float("nan"), None, 2**70 if value else -(2**70))
    elif isinstance(value, float):
        yield from (-1.0, float("nan"), float("inf"), None)
    elif isinstance(value, dict):  # of a generator
        yield {**value, "bit_generator": "MT19937"}
        yield {**value, "state": {"state": -1, "inc": 1}}
        yield {**value, "state": {"state": 2**200, "inc": 1}}
        yield {}


SENTENCE = "^(the saved |this buffer's |'[a-z]+' of environment)"
UNBOUNDED = {"draws", "sets", "ends", "batch_size"}
"""Counters, of which a large number may be right."""


def assert_same(one: Any, other: Any) -> None:
    for (path, value), (_, again) in zip(leaves(one), leaves(other), strict=True):
        same = value.tobytes() == again.tobytes() if isinstance(value, np.ndarray) else value == again
        assert same, path


@pytest.mark.parametrize("name", BUFFERS)
def test_every_part_of_a_state_is_checked(name: str) -> None:
    original, target = BUFFERS[name](), BUFFERS[name]()
    original.sample(5)
    state, before = original.state(), target.state()
    tried = 0
    for path, value in leaves(state):
        damaged = [without(state, path)] if path != ("gamma",) else []
        for wrong in wrong_values(value):
            if path[-1] in UNBOUNDED and isinstance(wrong, int) and wrong > 0:
                continue
            if path[-1] == "ahead" and isinstance(wrong, np.ndarray) and wrong.ndim == 1 and wrong.dtype == np.int64:
                continue  # any number of draws may be left over
            damaged.append(with_leaf(state, path, wrong))
        for one in damaged:
            with pytest.raises(ValueError, match=SENTENCE) as caught:
                target.restore(one)
            assert "\n" not in str(caught.value), path
            assert_same(before, target.state())
            tried += 1
    assert tried > 80
    target.restore(state)
    np.testing.assert_array_equal(original.sample(9).rows, target.sample(9).rows)


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        (("drawer", "ahead"), lambda a: np.append(a, 20), "'ahead' must be at most 19, got 20"),
        (("drawer", "ahead"), lambda a: np.append(a, -1), "'ahead' must be at least 0, got -1"),
        (("recent",), lambda a: np.where(a == -1, 20, a), "'recent' must be at most 19, got 20"),
        (("oldest",), lambda a: a - 1, "'oldest' must be a whole number from 13 to 33, got 12"),
        (("first",), lambda a: a + 1, "'first' must be a whole number from 13 to 13, got 14"),
        (("clock",), lambda a: a + 1, "'oldest' must be a whole number from 14 to 34, got 13"),
        (("transitions", "rows"), lambda a: a[:, :1], r"'rows' must have the shape \(any, 6\), got \(20, 1\)"),
        (("transitions", "rows"), lambda a: a[:-1], "'rows' must be 20, one a transition, got 19"),
        (("transitions", "rows"), lambda a: np.where(a == a[3], np.nan, a), "values must be finite in float32"),
        (("transitions", "rows"), lambda a: a + np.float32(0.5), "'terminated' must be 0 or 1"),
    ],
)
def test_what_is_wrong_is_said(path: tuple[str, ...], change: Callable[[Any], Any], message: str) -> None:
    made = rows()
    made.sample(4)
    state = made.state()
    value = state
    for name in path:
        value = value[name]
    with pytest.raises(ValueError, match=message):
        rows().restore(with_leaf(state, path, change(value)))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("leaves", lambda a: np.where(a > 0, a, 1.0), "above 0 for each transition that is held, and 0 for all others"),
        ("leaves", lambda a: np.where(np.arange(len(a)) == 3, 0.0, a), "above 0 for each transition that is held"),
        ("leaves", lambda a: a * 2, "'node_sums' are not the sums of the saved 'leaves'"),
        ("block_sums", lambda a: a * 2, "'block_sums' are not the sums of the saved 'node_sums'"),
        ("bound", lambda a: a / 2, "'bound' must be a number from"),
        ("largest", lambda a: 0.5, r"'largest' must be a number from 1 to 1e\+100, got 0.5"),
        ("seen", lambda a: a + 1, "'seen' must be a whole number from 0 to 33, got 34"),
        ("oldest", lambda a: a - 1, "'oldest' must be a whole number from 13 to 33, got 12"),
    ],
)
def test_priorities_are_checked_against_what_is_held(name: str, change: Callable[[Any], Any], message: str) -> None:
    state = by_priority().state()
    with pytest.raises(ValueError, match=message):
        by_priority().restore(with_leaf(state, ("drawer", name), change(state["drawer"][name])))


def test_a_state_taken_before_the_priorities_were_looked_at_comes_back() -> None:
    """Transitions added since the last draw have no priority yet, and those written over one of their own still."""
    for first, then in ((7, 3), (7, 30), (33, 5), (33, 50)):
        made, other = by_priority(first), by_priority(1)
        for _ in range(then):
            made.add(obs=np.zeros(3), choice=0, reward=0, terminated=False)
        other.restore(made.state())
        np.testing.assert_array_equal(made.law(), other.law())


def test_numbers_that_are_not_finite_come_back_where_they_may_be_stored() -> None:
    made, other = (rows(check_finite=False) for _ in range(2))
    made.add(obs=np.full(3, np.nan), choice=0, reward=np.inf, terminated=False)
    other.restore(made.state())
    np.testing.assert_array_equal(made.gather(np.arange(20)).rows, other.gather(np.arange(20)).rows)
    with pytest.raises(ValueError, match=r"values must be finite in float32 \(check_finite=False"):
        rows().restore(made.state())


@pytest.mark.parametrize("name", ["rows", "pixels"])
def test_transitions_that_are_put_are_checked(name: str) -> None:
    """As a checkpoint does: the state first, and the transitions by segments."""
    made, other = BUFFERS[name](), BUFFERS[name]()
    other.restore(made.state(transitions=False))
    first = made.first_needed
    good = made.transitions(first, made.clock)
    before = other.state()
    for key, value in good.items():
        for wrong in wrong_values(value):
            if name == "rows" and len(wrong) == 1 and isinstance(wrong, np.ndarray) and wrong.ndim == 2:
                continue  # a segment may be of any length
            with pytest.raises(ValueError, match=SENTENCE):
                other.put(first, {**good, key: wrong})
            assert_same(before, other.state())
    for start in (first - 1, first + 1):
        with pytest.raises(ValueError, match=f"must be of transitions {first} to {made.clock - 1}"):
            other.put(start, good)
    assert_same(before, other.state())
    other.put(first, good)
    assert_same(made.state(), other.state())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("depth", 3, "'depth' must be at most 2, got 3"),
        ("final", 5, "'final' must be -1 or at least 23, got 5"),
        ("final", 32, "'final' must be at most 31, got 32"),
    ],
)
def test_frames_are_never_looked_for_where_there_are_none(name: str, value: int, message: str) -> None:
    made = pixels()
    state = made.state()
    arrays = state["transitions"]
    wrong = arrays[name].copy()
    wrong[arrays["final"] >= 0] = value
    with pytest.raises(ValueError, match=message):
        pixels().restore(with_leaf(state, ("transitions", name), wrong))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stamps": np.array([3, 2, 5])}, "'stamps' must rise"),
        ({"stamps": np.array([1.0, 2.0, 5.0])}, "'stamps' must be an array of int64, got float64"),
        ({"owners": np.array([0, 1])}, r"'owners' must have the shape \(3\), got \(2,\)"),
        ({"newest": 4}, "'newest' must be a whole number >= 5, got 4"),
    ],
)
def test_stamped_rows_are_checked(change: dict[str, Any], message: str) -> None:
    made = StampedRows(n.Uniform())
    made.add(np.array([1, 2, 5]), np.array([0, 0, 1]))
    state = made.state()
    with pytest.raises(ValueError, match=message):
        made.restore({**state, **change})
    np.testing.assert_array_equal(made.stamps, [1, 2, 5])
