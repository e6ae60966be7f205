"""TorchRL's own buffers with our sampler: the law of what they return, by the stamps that transitions carry."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    RandomSampler,
    ReplayBuffer,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
)

import neoteny
from neoteny.integrations.torchrl import AgeWeightedSampler
from oracles import STRICT, p_value

T, W_MIN, DRAWS = 40.0, 0.1, 100_000


def swd(age: int) -> float:
    """Algorithm 1, line 3."""
    return max(W_MIN, 1 - age / T)


def steps(start: int, count: int, num_envs: int) -> TensorDict:
    """`count` vector steps as a collector brings them, [envs, time]; each transition knows when it was added."""
    number = torch.arange(start, start + count).expand(num_envs, -1)
    ids = number * num_envs + torch.arange(num_envs)[:, None]
    return TensorDict({"stamp": number * num_envs, "id": ids}, batch_size=[num_envs, count])


def add_each(buffer: Any, data: TensorDict) -> None:
    for row in data.reshape(-1):
        buffer.add(row)


def extend_each_step(buffer: Any, data: TensorDict) -> None:
    for step in data.unbind(1):
        buffer.extend(step)


FILLED: dict[str, tuple[dict[str, Any], Callable[[Any, TensorDict], Any], Callable[[int], Any]]] = {
    "add": ({}, add_each, LazyTensorStorage),
    "extend": ({}, lambda b, data: b.extend(data.reshape(-1)), LazyTensorStorage),
    "extend a list": ({}, lambda b, data: b.extend(data.reshape(-1)), ListStorage),
    "extend a memmap": ({}, lambda b, data: b.extend(data.reshape(-1)), LazyMemmapStorage),
    "a step of 4 envs each": ({"num_envs": 4}, extend_each_step, LazyTensorStorage),
    "steps of 4 envs, reshaped": (
        {"num_envs": 4, "env_first": True},
        lambda b, data: b.extend(data.reshape(-1)),
        LazyTensorStorage,
    ),
    "steps of 4 envs, time first": (
        {"num_envs": 4, "env_first": False},
        lambda b, data: b.extend(data.transpose(0, 1).reshape(-1)),
        LazyTensorStorage,
    ),
    "two dimensions": (
        {"num_envs": 4},
        lambda b, data: b.extend(data),
        lambda size: LazyTensorStorage(size, ndim=2),
    ),
    "three dimensions": (
        {"num_envs": 4},
        lambda b, data: b.extend(data.reshape(2, 2, -1)),
        lambda size: LazyTensorStorage(size, ndim=3),
    ),
}
"""Each way to fill a buffer: arguments of the sampler, how vector steps go in, the storage."""


def fill(
    way: str, capacity: int, ticks: int, sampler: Any = None, per_extend: int = 5, shared: bool = False
) -> tuple[Any, int]:
    """A buffer after `ticks` vector steps, and the age clock: the newest is of age 1."""
    arguments, put, storage = FILLED[way]
    num_envs = arguments.get("num_envs", 1)
    sampler = sampler or AgeWeightedSampler(T, W_MIN, **arguments)
    buffer = TensorDictReplayBuffer(
        storage=storage(capacity),
        sampler=sampler,
        batch_size=DRAWS,
        generator=torch.Generator().manual_seed(0),
        shared=shared,
    )
    assert ticks % per_extend == 0
    for start in range(0, ticks, per_extend):
        put(buffer, steps(start, per_extend, num_envs))
    return buffer, (ticks - 1) * num_envs + 1


def fit(buffer: Any, now: int, weight: Callable[[int], float] = swd) -> float:
    """The p-value of what ``buffer.sample()`` returns under Algorithm 1, by the stamps of all that is stored."""
    held = buffer.storage[:] if isinstance(buffer.storage, ListStorage) else buffer.storage.get(slice(None))
    held = torch.stack(list(held)) if isinstance(held, list) else held[: buffer.storage.shape[0]]
    ids, stamps = held["id"].flatten(), held["stamp"].flatten()
    assert len(ids.unique()) == len(ids) == len(buffer)
    weights = np.array([weight(now - stamp) for stamp in stamps.tolist()])
    drawn = buffer.sample()
    counts = (torch.bincount(drawn["id"], minlength=int(ids.max()) + 1))[ids].numpy()
    assert counts.sum() == DRAWS
    return p_value(counts, weights / weights.sum())


@pytest.mark.parametrize(("capacity", "ticks"), [(400, 5), (400, 35), (80, 20), (80, 80), (80, 235)])
@pytest.mark.parametrize("way", FILLED)
def test_what_a_buffer_returns_follows_algorithm_1(way: str, capacity: int, ticks: int) -> None:
    assert fit(*fill(way, capacity, ticks)) > STRICT


@pytest.mark.parametrize("way", ["a step of 4 envs each", "steps of 4 envs, time first"])
def test_environments_need_not_divide_the_capacity(way: str) -> None:
    assert fit(*fill(way, 82, 235)) > STRICT


@pytest.mark.parametrize("way", FILLED)
def test_the_oracle_sees_uniform_draws_and_ages_off_by_one(way: str) -> None:
    uniform, now = fill(way, 80, 235, RandomSampler())
    assert fit(uniform, now) < STRICT
    buffer, now = fill(way, 80, 235)
    assert fit(buffer, now + (4 if "4" in way or "dim" in way else 1)) < STRICT


def test_an_order_that_is_wrong_is_seen() -> None:
    """Rows of [envs, time] taken for [time, envs]: what saying env_first is for."""
    wrong = AgeWeightedSampler(T, W_MIN, num_envs=4, env_first=False)
    assert fit(*fill("steps of 4 envs, reshaped", 80, 235, wrong, per_extend=5)) < STRICT


class HalfLife:
    def weight(self, age: Any) -> Any:
        return 0.5 ** (age / 15)


class Newest:
    uses = ("num_stored", "clock")

    def weight(self, age: Any, num_stored: int, clock: int) -> Any:
        return (age <= num_stored / 2) * 1.0 + (age <= clock / 10)


@pytest.mark.parametrize("way", ["extend", "steps of 4 envs, reshaped", "two dimensions"])
def test_any_schedule(way: str) -> None:
    arguments = FILLED[way][0]
    for schedule, weight in [
        (HalfLife(), lambda age: 0.5 ** (age / 15)),
        (neoteny.Window(20), lambda age: 1.0 if age <= 20 else 0.0),
        (Newest(), lambda age: (age <= 40) + (age <= 235 * arguments.get("num_envs", 1) / 10)),
    ]:
        assert fit(*fill(way, 80, 235, AgeWeightedSampler(age_weight=schedule, **arguments)), weight) > STRICT


def test_a_collectors_batch_has_the_order_that_the_tests_assume() -> None:
    """[envs, time], the environments first: what reshape(-1) makes of it is env_first."""
    from torchrl.collectors import Collector
    from torchrl.envs import GymEnv, SerialEnv, StepCounter, TransformedEnv

    env = TransformedEnv(SerialEnv(2, lambda: GymEnv("Pendulum-v1")), StepCounter())
    collector = Collector(env, frames_per_batch=10, total_frames=10)
    (batch,) = list(collector)
    assert batch.shape == (2, 5)
    assert batch.reshape(-1)["step_count"].flatten().tolist() == [0, 1, 2, 3, 4] * 2
    collector.shutdown()


def test_the_seed_fixes_the_draws() -> None:
    def draws(seed: int) -> list[int]:
        buffer, _ = fill("extend", 80, 235)
        buffer.set_rng(torch.Generator().manual_seed(seed))
        return [*buffer.sample()["id"].tolist(), *buffer.sample()["id"].tolist()]

    assert draws(0) == draws(0) != draws(1)


def test_without_a_generator_the_global_seed_fixes_the_draws() -> None:
    sampler = AgeWeightedSampler(T)
    buffer = ReplayBuffer(storage=LazyTensorStorage(100), sampler=sampler, batch_size=50)
    buffer.extend(torch.arange(60))
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        drawn.append(buffer.sample().tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_another_generator_is_followed_from_the_next_batch_on() -> None:
    buffer, _ = fill("extend", 80, 235)
    generator = torch.Generator().manual_seed(5)
    buffer.set_rng(generator)
    first = buffer.sample()["id"]
    generator.manual_seed(5)  # the host's generator is the only source: winding it back winds the draws back
    assert (buffer.sample()["id"] == first).all()


def test_the_global_randomness_is_left_alone() -> None:
    buffer, _ = fill("extend", 80, 235)
    before = torch.get_rng_state()
    buffer.sample()
    assert (torch.get_rng_state() == before).all()


@pytest.mark.parametrize("way", [way for way in FILLED if way != "extend a list"])  # which TorchRL cannot dump
def test_a_state_dict_goes_on_with_the_same_draws(way: str, tmp_path: Path) -> None:
    buffer, now = fill(way, 80, 235)
    others = [fill(way, 80, 5)[0] for _ in range(2)]
    others[0].load_state_dict(copy.deepcopy(buffer.state_dict()))
    buffer.dumps(tmp_path / "saved")
    others[1].loads(tmp_path / "saved")
    expected = buffer.sample()["id"]
    for other in others:
        assert other.sampler.state_dict() == buffer.sampler.state_dict()
        assert (other.sample()["id"] == expected).all()
        put, num_envs = FILLED[way][1], other.sampler.num_envs
        put(other, steps(235, 5, num_envs))
        assert fit(other, now + 5 * num_envs) > STRICT


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not the state of an AgeWeightedSampler: it lacks env_first, next_slot"):
        AgeWeightedSampler().load_state_dict(RandomSampler().state_dict())
    with pytest.raises(ValueError, match="saved with num_envs=4, here it is 2"):
        AgeWeightedSampler(num_envs=2).load_state_dict(AgeWeightedSampler(num_envs=4).state_dict())


@pytest.mark.parametrize("wrong", [{"written": -1}, {"next_slot": -2}, {"next_slot": 31}, {"rows_per_extend": 3}])
def test_an_order_that_cannot_be_right_is_refused(wrong: dict[str, int]) -> None:
    buffer, _ = fill("steps of 4 envs, time first", 80, 5)
    before = buffer.sampler.state_dict()
    with pytest.raises(ValueError, match="the saved order cannot be right"):
        buffer.sampler.load_state_dict({**before, **wrong})
    assert buffer.sampler.state_dict() == before


def test_a_copy_and_a_pickle_hold_the_order() -> None:
    buffer, _ = fill("extend", 80, 235)
    for other in (copy.deepcopy(buffer.sampler), pickle.loads(pickle.dumps(buffer.sampler))):
        other._rng = torch.Generator().manual_seed(1)
        buffer.sampler._rng = torch.Generator().manual_seed(1)
        expected, _ = buffer.sampler.sample(buffer.storage, 100)
        assert (other.sample(buffer.storage, 100)[0] == expected).all()
        other.extend(torch.arange(75, 80))
        assert buffer.sampler.state_dict()["written"] == 235


def test_an_emptied_buffer_begins_anew() -> None:
    buffer, _ = fill("extend", 80, 235)
    buffer.empty()
    with pytest.raises(RuntimeError, match="Cannot sample from an empty storage"):
        buffer.sample()
    buffer.extend(steps(0, 30, 1).reshape(-1))
    assert fit(buffer, 30) > STRICT


@pytest.mark.parametrize("way", ["extend", "steps of 4 envs, time first", "two dimensions"])
def test_a_filled_buffer_is_joined_when_it_is_told(way: str) -> None:
    for capacity, ticks in [(80, 15), (80, 235)]:
        buffer, now = fill(way, capacity, ticks, RandomSampler())
        sampler = AgeWeightedSampler(T, W_MIN, **FILLED[way][0])
        buffer.set_sampler(sampler)
        with pytest.raises(RuntimeError, match=r"but this sampler saw 0 written.*join\(buffer.write_count\)"):
            buffer.sample()
        sampler.join(buffer.write_count)
        assert fit(buffer, now) > STRICT
        FILLED[way][1](buffer, steps(ticks, 5, sampler.num_envs))
        assert fit(buffer, now + 5 * sampler.num_envs) > STRICT


def test_a_set_sampler_draws_from_the_buffers_generator() -> None:
    drawn = []
    for _ in range(2):
        buffer, _ = fill("extend", 80, 235, RandomSampler())
        buffer.set_sampler(AgeWeightedSampler(T))
        buffer.sampler.join(buffer.write_count)
        drawn.append(buffer.sample()["id"].tolist())
    assert drawn[0] == drawn[1]


def test_a_wrong_write_count_is_noticed() -> None:
    buffer, _ = fill("extend", 80, 235, RandomSampler())
    buffer.set_sampler(AgeWeightedSampler(T))
    buffer.sampler.join(234)
    buffer.extend(steps(235, 5, 1).reshape(-1))
    with pytest.raises(RuntimeError, match="this sampler saw 239 written, the last to slot 79"):
        buffer.sample()


def test_orders_that_are_not_known_are_refused() -> None:
    def sampling(storage: Any = None, **arguments: Any) -> Any:
        sampler = AgeWeightedSampler(T, **arguments)
        storage = LazyTensorStorage(80) if storage is None else storage
        return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=8)

    flat = steps(0, 5, 4).reshape(-1)
    with pytest.raises(ValueError, match=r"20 rows from num_envs=4 holds 5 vector steps: say env_first=True if"):
        sampling(num_envs=4).extend(flat.clone())
    with pytest.raises(ValueError, match="multiple of num_envs=4 rows, got 6"):
        sampling(num_envs=4, env_first=True).extend(flat[:6])
    with pytest.raises(ValueError, match="multiple of num_envs=4 rows, got 1"):
        sampling(num_envs=4).add(flat[0])
    buffer = sampling(num_envs=4, env_first=True)
    buffer.extend(flat.clone())
    with pytest.raises(ValueError, match="as many rows as the first, 20, got 4"):
        buffer.extend(flat[:4])
    buffer = sampling(LazyTensorStorage(90), num_envs=4, env_first=True)
    buffer.extend(flat.clone())
    with pytest.raises(ValueError, match="90 rows are no multiple of 20"):
        buffer.sample()
    for arguments in ({}, {"num_envs": 2}, {"num_envs": 4, "env_first": True}):
        buffer = sampling(LazyTensorStorage(80, ndim=2), **arguments)
        with pytest.raises(
            ValueError, match=r"say num_envs=4 and leave out env_first|slot \d was written where slot \d"
        ):
            (buffer.extend(steps(0, 5, 4)), buffer.sample())
    with pytest.raises(ValueError, match="20 rows goes around its storage of 8 more than once"):
        sampling(LazyTensorStorage(8)).extend(flat.clone())
    with pytest.raises(ValueError, match="a buffer filled before cannot be joined"):
        AgeWeightedSampler(num_envs=2, env_first=True).join(3)
    with pytest.raises(ValueError, match="must be >= 0, got -1"):
        AgeWeightedSampler().join(-1)


def test_a_writer_that_does_not_go_around_is_refused() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(5),
        sampler=AgeWeightedSampler(T),
        writer=TensorDictMaxValueWriter(rank_key="reward"),
        batch_size=8,
    )
    rewards = torch.tensor([5.0, 1.0, 4.0, 2.0, 3.0])
    buffer.extend(TensorDict({"reward": rewards}, batch_size=[5]))
    with pytest.raises(ValueError, match="slot 1 was written where slot 5 was next"):
        buffer.extend(TensorDict({"reward": torch.tensor([9.0])}, batch_size=[1]))
    with pytest.raises(RuntimeError, match="saw 0 written"):
        buffer.sample()


def test_bad_arguments_are_one_sentence() -> None:
    with pytest.raises(ValueError, match="num_envs must be >= 1, got 0"):
        AgeWeightedSampler(num_envs=0)
    with pytest.raises(ValueError, match="has its own numbers: leave out decay_steps"):
        AgeWeightedSampler(80_000, age_weight=neoteny.Window(5))
    with pytest.raises(TypeError, match="a schedule is an object with weight"):
        AgeWeightedSampler(age_weight="swd")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no without-replacement variant"):
        AgeWeightedSampler(replacement=False)  # type: ignore[call-arg]
    buffer, _ = fill("extend", 80, 5)
    with pytest.raises(ValueError, match="batch_size must be >= 1, got 0"):
        buffer.sampler.sample(buffer.storage, 0)


def test_it_says_what_it_is() -> None:
    assert repr(AgeWeightedSampler(80_000, num_envs=4, env_first=True)) == (
        "AgeWeightedSampler(LinearDecay(decay_steps=80000, min_weight=0.1), num_envs=4, env_first=True)"
    )
    assert AgeWeightedSampler().schedule == neoteny.LinearDecay()


ROWS: dict[str, Callable[[int], Any]] = {
    "tensor": lambda size: torch.randint(100, (size, 1)),
    "tensordict": lambda size: TensorDict(
        {"a": torch.randint(100, (size, 1)), "next": {"b": torch.randn(size)}}, [size]
    ),
    "tree": lambda size: {"a": torch.randint(100, (size, 1)), "b": {"c": [torch.zeros(size, 3), (torch.ones(size),)]}},
}


@pytest.mark.parametrize("size", [3, 5, 100])
@pytest.mark.parametrize(
    ("buffer_type", "storage", "kind"),
    [
        *[(ReplayBuffer, storage, kind) for storage in (LazyTensorStorage, LazyMemmapStorage) for kind in ROWS],
        (TensorDictReplayBuffer, LazyTensorStorage, "tensordict"),
        (TensorDictReplayBuffer, ListStorage, "tensordict"),
    ],
)
def test_what_torchrls_tests_of_composable_buffers_ask(buffer_type: Any, storage: Any, kind: str, size: int) -> None:
    """Its cases (add, extend, sample, repr; every kind of row) as its test_composable.py has them for its samplers."""
    torch.manual_seed(0)
    leaves = torch.utils._pytree.tree_leaves
    buffer = buffer_type(storage=storage(size), sampler=AgeWeightedSampler(T), batch_size=3)
    rows = ROWS[kind](3)
    one = rows[0] if kind != "tree" else torch.utils._pytree.tree_map(lambda leaf: leaf[0], rows)
    buffer.add(one.clone() if kind == "tensordict" else one)
    assert "AgeWeightedSampler(LinearDecay" in str(buffer)
    batch, info = buffer.sample(return_info=True)
    assert info["index"].tolist() == [0, 0, 0]
    assert len(buffer) == 1
    if kind == "tensordict":
        assert (batch["a"] == one["a"]).all()
        assert (batch["next", "b"] == one["next", "b"]).all()
    else:
        assert all((drawn == given).all() for drawn, given in zip(leaves(batch), leaves(one), strict=True))
    buffer.extend(rows)
    buffer.extend(ROWS[kind](3))
    assert len(buffer) == min(size, 7)
    drawn = {i for _ in range(100) for i in buffer.sample(return_info=True)[1]["index"].tolist()}
    assert drawn == set(range(len(buffer)))


def test_batches_drawn_ahead_by_threads_are_sound() -> None:
    """With prefetch a batch was drawn before what came since; all of it was stored when it was drawn."""
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(50), sampler=AgeWeightedSampler(T), batch_size=32, prefetch=3
    )
    seen: set[int] = set()
    for start in range(0, 200, 5):
        buffer.extend(steps(start, 5, 1).reshape(-1))
        ids = buffer.sample()["id"]
        seen |= set(ids.tolist())
        assert int(ids.min()) >= start + 5 - 50 - 3 * 5
    assert len(seen) > 150


@pytest.mark.slow
def test_what_another_process_adds_is_seen() -> None:
    """A collector's worker extends the buffer that this process samples from."""
    buffer, now = fill("extend", 80, 75, shared=True)
    buffer.set_rng(None)  # a torch generator does not go to another process
    torch.manual_seed(0)
    process = torch.multiprocessing.get_context("spawn").Process(
        target=buffer.extend, args=(steps(75, 25, 1).reshape(-1),)
    )
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert buffer.sampler.state_dict()["written"] == buffer.write_count == 100
    assert fit(buffer, now + 25) > STRICT
