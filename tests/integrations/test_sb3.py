"""Stable-Baselines3 and SBX with our buffers: the law of what their own `sample` returns, and their own agents."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from neoteny import SAMPLERS, AgeWeightedSampler, LinearDecay, LinearGrowth, ReferenceSampler, Window
from neoteny.integrations.sb3 import (
    AgeWeightedDictReplayBuffer,
    AgeWeightedNStepReplayBuffer,
    AgeWeightedReplayBuffer,
)
from oracles import STRICT, assert_million, p_value

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what SBX imports uses what JAX has deprecated
    import sbx


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


BOX = spaces.Box(-1e9, 1e9, (2,), np.float64)
ACTION = spaces.Box(-1, 1, (1,))
FILLS = {
    "part full": (100, 1, 37),
    "just full": (100, 1, 100),
    "wrapped": (100, 1, 263),
    "part full, 4 envs": (100, 4, 9),
    "wrapped, 4 envs": (100, 4, 81),
    "wrapped, 7 envs that do not divide": (100, 7, 43),
}
every_fill = pytest.mark.parametrize(("capacity", "num_envs", "ticks"), FILLS.values(), ids=FILLS)


def add(buffer: ReplayBuffer, tick: int) -> None:
    """One vector step; each observation is (when it was added, its environment)."""
    envs = buffer.n_envs
    obs = np.stack([np.full(envs, tick), np.arange(envs)], axis=1).astype(np.float64)
    successor = obs + np.array([1, 0])
    if isinstance(buffer, DictReplayBuffer):
        obs, successor = {"stamp": obs}, {"stamp": successor}
    buffer.add(obs, successor, np.zeros((envs, 1)), np.full(envs, tick), np.zeros(envs), [{}] * envs)


def filled(capacity: int, num_envs: int, ticks: int, **options: Any) -> AgeWeightedReplayBuffer:
    space = spaces.Dict({"stamp": BOX}) if options.pop("dictionary", False) else BOX
    if "age_weight" not in options:
        options.setdefault("decay_steps", 5)
    buffer = AgeWeightedReplayBuffer(capacity, space, ACTION, device="cpu", n_envs=num_envs, **options)
    for tick in range(ticks):
        add(buffer, tick)
    return buffer


def drawn(buffer: ReplayBuffer, size: int = 100_000) -> np.ndarray:
    """The stamps of a batch that the buffer's own sample returns, (size, [tick, environment])."""
    np.random.seed(0)  # noqa: NPY002 - SB3's randomness
    obs = buffer.sample(size).observations
    return (obs["stamp"] if isinstance(obs, dict) else obs).numpy().astype(np.int64)


def expected_law(ticks: range, num_envs: int, weight: Any) -> np.ndarray:
    """Algorithm 1 over the stamps of what is held: the clock moves after the add, a vector step shares its age."""
    now = (ticks[-1]) * num_envs + 1
    weights = np.array([[weight(now - tick * num_envs)] * num_envs for tick in ticks], np.float64)
    return (weights / math.fsum(weights.ravel())).ravel()


def assert_law(buffer: ReplayBuffer, ticks: range, weight: Any) -> None:
    stamps = drawn(buffer)
    counts = np.zeros((len(ticks), buffer.n_envs))
    assert stamps[:, 0].min() >= ticks[0]
    np.add.at(counts, (stamps[:, 0] - ticks[0], stamps[:, 1]), 1)
    assert p_value(counts.ravel(), expected_law(ticks, buffer.n_envs, weight)) > STRICT


def ticks_held(capacity: int, num_envs: int, ticks: int) -> range:
    return range(max(0, ticks - capacity // num_envs), ticks)


@every_fill
@pytest.mark.parametrize("options", [{}, {"dictionary": True}, {"n_steps": 1, "gamma": 0.9}], ids=str)
def test_sample_follows_algorithm_1(capacity: int, num_envs: int, ticks: int, options: dict[str, Any]) -> None:
    buffer = filled(capacity, num_envs, ticks, decay_steps=60.5, min_weight=0.07, **options)
    kind = {0: AgeWeightedReplayBuffer, 1: AgeWeightedDictReplayBuffer, 2: AgeWeightedNStepReplayBuffer}[len(options)]
    assert type(buffer) is kind
    assert_law(buffer, ticks_held(capacity, num_envs, ticks), lambda age: max(0.07, 1 - age / 60.5))


@every_fill
def test_any_schedule(capacity: int, num_envs: int, ticks: int) -> None:
    class Clocked:
        uses = ("clock",)

        def weight(self, age: Any, clock: int) -> Any:
            return 1.0 + (age > clock / 3)

    held = ticks_held(capacity, num_envs, ticks)
    buffer = filled(capacity, num_envs, ticks, age_weight=LinearGrowth(50, 0.1))
    assert_law(buffer, held, lambda age: min(1, 0.1 + age / 50))
    buffer = filled(capacity, num_envs, ticks, age_weight=Clocked())
    assert_law(buffer, held, lambda age: 1.0 + (age > ticks * num_envs / 3))


@pytest.mark.parametrize(("capacity", "num_envs", "ticks"), [(50, 1, 20), (50, 1, 120), (60, 3, 100)])
def test_memory_optimisation(capacity: int, num_envs: int, ticks: int) -> None:
    """With a full ring the slot at `pos` has lost its observation: it is never drawn."""
    options = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    buffer = filled(capacity, num_envs, ticks, decay_steps=30, **options)
    slots = capacity // num_envs
    oldest = max(0, ticks - slots + 1)
    assert_law(buffer, range(oldest, ticks), lambda age: max(0.1, 1 - age / 30))
    batch = buffer.sample(1_000)
    np.testing.assert_array_equal(batch.next_observations[:, 0], batch.observations[:, 0] + 1)


def test_n_step_returns_are_sb3s() -> None:
    ours = filled(50, 2, 70, n_steps=3, gamma=0.9)
    theirs = NStepReplayBuffer(50, BOX, ACTION, device="cpu", n_envs=2, n_steps=3, gamma=0.9)
    for tick in range(70):
        add(theirs, tick)
    slots = np.arange(25)
    for a, b in zip(_seeded(ours, slots), _seeded(theirs, slots), strict=True):
        torch.testing.assert_close(a, b)


def _seeded(buffer: ReplayBuffer, slots: np.ndarray) -> Any:
    np.random.seed(0)  # noqa: NPY002
    return buffer._get_samples(slots)


def test_seeds_fix_the_draws() -> None:
    buffer = filled(100, 4, 81)
    batches = []
    for seed in (1, 1, 2):
        np.random.seed(seed)  # noqa: NPY002
        batches.append(np.concatenate([buffer.sample(32).observations.numpy() for _ in range(3)]))
    assert (batches[0] == batches[1]).all()
    assert (batches[0] != batches[2]).any()


def test_vec_normalize() -> None:
    env = VecNormalize(make_vec_env("Pendulum-v1", 2))
    model = SAC("MlpPolicy", env, replay_buffer_class=AgeWeightedReplayBuffer, learning_starts=50, device="cpu")
    model.learn(100)
    raw, normal = (model.replay_buffer._get_samples(np.arange(20), env=e) for e in (None, env))
    model.replay_buffer._get_samples = lambda slots, env=None: env  # type: ignore[method-assign]
    assert model.replay_buffer.sample(20, env=env) is env
    assert not torch.allclose(raw.rewards, normal.rewards)


@pytest.mark.parametrize("kind", [SAC, sbx.SAC])
def test_the_same_seed_gives_the_same_run(kind: Any) -> None:
    ends = []
    for seed in (3, 3, 4):
        model = kind(
            "MlpPolicy",
            "Pendulum-v1",
            seed=seed,
            learning_starts=100,
            policy_kwargs={"net_arch": [16]},
            replay_buffer_class=AgeWeightedReplayBuffer,
            replay_buffer_kwargs={"decay_steps": 100},
            **({"device": "cpu"} if kind is SAC else {}),
        )
        model.learn(250)
        ends.append(model.predict(np.ones(3), deterministic=True)[0])
    assert (ends[0] == ends[1]).all()
    assert (ends[0] != ends[2]).all()


def test_a_run_under_way_is_joined(tmp_path: Path) -> None:
    """SAC.load and load_replay_buffer bring the uniform buffer back, whatever class the agent names."""
    settings = {"learning_starts": 50, "device": "cpu", "policy_kwargs": {"net_arch": [16]}, "buffer_size": 300}
    model = SAC("MlpPolicy", make_vec_env("Pendulum-v1", 2), **settings)
    model.learn(500)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")

    model = SAC.load(
        tmp_path / "model",
        make_vec_env("Pendulum-v1", 2),
        custom_objects={
            "replay_buffer_class": AgeWeightedReplayBuffer,
            "replay_buffer_kwargs": {"decay_steps": 40},
        },
    )
    model.load_replay_buffer(tmp_path / "buffer")
    assert type(model.replay_buffer) is ReplayBuffer  # SB3's silence is what must not be relied on
    before = model.replay_buffer
    model.replay_buffer = AgeWeightedReplayBuffer.from_buffer(before, decay_steps=40, min_weight=0)
    assert model.replay_buffer.observations is before.observations
    assert (model.replay_buffer.pos, model.replay_buffer.full) == (before.pos, True)
    assert model.replay_buffer.added == 300
    seen: list[np.ndarray] = []
    own = model.replay_buffer._get_samples
    model.replay_buffer._get_samples = lambda slots, env=None: seen.append(slots) or own(slots, env)  # type: ignore
    model.learn(100, reset_num_timesteps=False)
    steps_behind = [
        (model.replay_buffer.pos - 1 - slots) % 150 for slots in seen[-1:]
    ]  # of the last batch, which nothing was added after
    assert max(behind.max() for behind in steps_behind) < 20  # 40 transitions of 2 environments
    assert sum(len(slots) for slots in seen) >= 50 * 256


@pytest.mark.parametrize("kind", [ReplayBuffer, DictReplayBuffer, NStepReplayBuffer])
@pytest.mark.parametrize("ticks", [20, 130])
def test_conversion_keeps_the_order(kind: type, ticks: int) -> None:
    space = spaces.Dict({"stamp": BOX}) if kind is DictReplayBuffer else BOX
    options = {"n_steps": 1} if kind is NStepReplayBuffer else {}
    theirs = kind(50, space, ACTION, device="cpu", n_envs=2, **options)
    for tick in range(ticks):
        add(theirs, tick)
    ours = AgeWeightedReplayBuffer.from_buffer(theirs, age_weight=LinearDecay(20))
    assert_law(ours, ticks_held(50, 2, ticks), lambda age: max(0.1, 1 - age / 20))
    for tick in range(ticks, ticks + 30):
        add(ours, tick)
    again = AgeWeightedReplayBuffer.from_buffer(ours, age_weight=Window(7))
    assert_law(again, ticks_held(50, 2, ticks + 30), lambda age: float(age <= 7))
    assert again.added == ours.added == (min(ticks, 25) + 30) * 2


def test_saved_and_loaded(tmp_path: Path) -> None:
    replay = {"replay_buffer_class": AgeWeightedReplayBuffer, "replay_buffer_kwargs": {"decay_steps": 50}}
    model = SAC("MlpPolicy", "Pendulum-v1", **replay, device="cpu", buffer_size=100)
    model.learn(90)
    model.save_replay_buffer(tmp_path / "buffer")
    before = model.replay_buffer
    model.load_replay_buffer(tmp_path / "buffer")
    assert type(model.replay_buffer) is AgeWeightedReplayBuffer
    assert model.replay_buffer.added == 90
    for batch in (before, model.replay_buffer):
        np.random.seed(0)  # noqa: NPY002
        batch.drawn = batch.sample(10).observations
    torch.testing.assert_close(before.drawn, model.replay_buffer.drawn)
    model.replay_buffer.reset()
    assert (model.replay_buffer.added, model.replay_buffer.size()) == (0, 0)
    with pytest.raises(ValueError, match="nothing is stored yet"):
        model.replay_buffer.sample(1)


@pytest.mark.parametrize("after", [0, 30, 200])
def test_demonstrations_can_be_pinned(after: int) -> None:
    """A share of every batch is theirs for ever, and the rest is drawn by age from the rest."""
    buffer = filled(100, 2, 10, decay_steps=30, min_weight=0)
    buffer.pin(0.25)
    for tick in range(10, 10 + after):
        add(buffer, tick)
    counts = np.bincount(drawn(buffer)[:, 0], minlength=10 + after)
    pinned = np.full(10, (0.25 if after else 1.0) / 10)
    rest = ticks_held(80, 2, after)
    law = expected_law(rest, 2, lambda age: max(0, 1 - age / 30)).reshape(-1, 2).sum(axis=1) if after else np.zeros(0)
    expected = np.concatenate([pinned, np.zeros(max(0, after - 40)), 0.75 * law])
    assert p_value(counts, expected) > STRICT
    if after:
        assert buffer.share_of_newest(5) == pytest.approx(expected[-5:].sum())


def test_a_buffer_shorter_than_the_schedule_is_warned_of_as_by_our_own() -> None:
    ours = "still changes up to age 900, and this buffer forgets at {}: choose a shorter schedule or a larger capacity"
    with pytest.warns(UserWarning, match=ours.format(800)):
        SAC(
            "MlpPolicy",
            make_vec_env("Pendulum-v1", 4),
            buffer_size=803,  # SB3 keeps 200 rows of 4
            replay_buffer_class=AgeWeightedReplayBuffer,
            replay_buffer_kwargs={"decay_steps": 1_000},
            device="cpu",
        )
    with pytest.warns(UserWarning, match=ours.format(10)):
        AgeWeightedReplayBuffer.from_buffer(ReplayBuffer(10, BOX, ACTION, device="cpu"), decay_steps=1_000)
    pinned = filled(1_000, 1, 200)
    pinned.pin(0.5)
    with pytest.warns(UserWarning, match=ours.format(800)):
        AgeWeightedReplayBuffer.from_buffer(pinned, decay_steps=1_000)
    filled(900, 1, 0, decay_steps=1_000)  # just long enough: warnings are errors here


@every_fill
@pytest.mark.parametrize("name", SAMPLERS)
def test_pairs_draw_from_sb3s_own_layout(capacity: int, num_envs: int, ticks: int, name: str) -> None:
    """In a loop of one's own, from SB3's (CleanRL's) buffer as it is: rows are vector steps, columns environments."""
    buffer = ReplayBuffer(capacity, BOX, ACTION, device="cpu", n_envs=num_envs)
    for tick in range(ticks):
        add(buffer, tick)
    rows, envs = SAMPLERS[name](LinearDecay(60.5, 0.07)).pairs(
        np.random.default_rng(0),
        100_000,
        pos=buffer.pos,
        full=buffer.full,
        length=buffer.buffer_size,
        num_envs=num_envs,
    )
    stamps = buffer.observations[rows, envs].astype(np.int64)
    assert (stamps[:, 1] == envs).all()
    held = ticks_held(capacity, num_envs, ticks)
    counts = np.zeros((len(held), num_envs))
    np.add.at(counts, (stamps[:, 0] - held[0], envs), 1)
    assert p_value(counts.ravel(), expected_law(held, num_envs, lambda age: max(0.07, 1 - age / 60.5))) > STRICT


def test_pairs_draw_the_newest_as_often_as_they_should() -> None:
    """T 80,000, w_min 0.1, a million transitions of 8 environments: 7.55 x uniform, not 2.78 x as if rows were they."""
    buffer = ReplayBuffer(1_000_000, spaces.Box(0, 1, (1,)), ACTION, device="cpu", n_envs=8)
    buffer.pos, buffer.full = 1_234, True
    sampler = AgeWeightedSampler(LinearDecay(80_000, 0.1))
    rows, envs = sampler.pairs(
        np.random.default_rng(0), 4_000_000, pos=buffer.pos, full=True, length=buffer.buffer_size, num_envs=8
    )
    behind = (buffer.pos - 1 - rows) % buffer.buffer_size
    assert_million(behind * 8 + 7 - envs, ReferenceSampler(LinearDecay(80_000, 0.1)).probabilities(1_000_000, 8))
    newest = 125
    assert (behind < newest).mean() / (newest / buffer.buffer_size) == pytest.approx(7.55, rel=0.03)
    as_rows = sampler.slots(np.random.default_rng(0), 4_000_000, num_stored=125_000, head=1_234, capacity=125_000)
    assert ((1_233 - as_rows) % 125_000 < newest).mean() / (newest / 125_000) == pytest.approx(2.78, rel=0.03)


def test_what_is_refused() -> None:
    goals = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), BOX))
    for message, attempt in {
        "hindsight replay cannot be weighted": lambda: filled(10, 1, 0, goal_selection_strategy="future"),
        "X: hindsight replay": lambda: type("X", (AgeWeightedReplayBuffer, HerReplayBuffer), {}),
        "has its own numbers: leave out decay_steps": lambda: filled(10, 1, 0, age_weight=Window(3), decay_steps=9),
        "a schedule is an object with weight": lambda: filled(10, 1, 0, age_weight=Window),
        "decay_steps must be": lambda: filled(10, 1, 0, decay_steps=-1),
        "no n-step returns for Dict": lambda: filled(10, 1, 0, dictionary=True, n_steps=3),
        "share must be between 0 and 1, got 1.5": lambda: filled(10, 1, 3).pin(1.5),
        "it is full": lambda: filled(10, 1, 12).pin(0.5),
        "it holds nothing": lambda: filled(10, 1, 0).pin(0.5),
        "use neither": lambda: filled(10, 1, 3, n_steps=3).pin(0.5),
        "HerReplayBuffer is none: hindsight": lambda: AgeWeightedReplayBuffer.from_buffer(
            HerReplayBuffer(10, goals, ACTION, env=DummyVecEnv([lambda: gym.make("Pendulum-v1")]), device="cpu")
        ),
        "Own is none: what it draws by": lambda: AgeWeightedReplayBuffer.from_buffer(
            type("Own", (ReplayBuffer,), {})(10, BOX, ACTION, device="cpu")
        ),
    }.items():
        with pytest.raises((TypeError, ValueError), match=message):
            attempt()


@pytest.mark.slow
@pytest.mark.parametrize("library", ["sb3", "sbx"])
def test_their_sac_learns_pendulum(library: str) -> None:
    kind: Any = SAC if library == "sb3" else sbx.SAC
    model = kind(
        "MlpPolicy",
        "Pendulum-v1",
        seed=1,
        learning_rate=1e-3,
        learning_starts=500,
        policy_kwargs={"net_arch": [64, 64]},
        replay_buffer_class=AgeWeightedReplayBuffer,
        replay_buffer_kwargs={"decay_steps": 3_000},
        **({"device": "cpu"} if library == "sb3" else {}),
    )
    model.learn(9_000)
    mean, _ = evaluate_policy(model, make_vec_env("Pendulum-v1", 1, seed=5), n_eval_episodes=10, warn=False)
    assert mean > -400


@pytest.mark.slow
def test_their_other_agents_train() -> None:
    """DQN with n-step returns, and TD3 with memory optimisation from several environments."""
    replay: Any = {"replay_buffer_class": AgeWeightedReplayBuffer, "replay_buffer_kwargs": {"decay_steps": 400}}
    with pytest.warns(UserWarning, match="`n_steps=3` is ignored"):
        DQN("MlpPolicy", "CartPole-v1", n_steps=3, **replay, buffer_size=500)
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        buffer_size=500,
        learning_starts=100,
        replay_buffer_class=AgeWeightedReplayBuffer,
        replay_buffer_kwargs={"decay_steps": 400, "n_steps": 3, "gamma": 0.99},
        device="cpu",
    )
    model.learn(700)
    assert type(model.replay_buffer) is AgeWeightedNStepReplayBuffer
    model = TD3(
        "MlpPolicy",
        make_vec_env("Pendulum-v1", 4),
        buffer_size=400,
        learning_starts=100,
        optimize_memory_usage=True,
        replay_buffer_class=AgeWeightedReplayBuffer,
        replay_buffer_kwargs={"decay_steps": 400, "handle_timeout_termination": False},
        device="cpu",
    )
    model.learn(800)
    assert model.replay_buffer.full
