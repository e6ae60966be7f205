"""Drift in a run: a policy that moved a known way gives the known curve, training is not disturbed, T survives."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import neoteny
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.measuring.drift import Drift
from neoteny.plasticity.drift import age_ranges
from neoteny.replay.sampling import AgeWeightedSampler
from neoteny.runs.inspect import facts_of
from neoteny.runs.records import read_metrics
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training import measurements
from neoteny.training.updating import unpacking

TINY = TD3Config((16,), batch_size=16, learning_starts=100)
BOUND = np.full(2, 100.0, np.float32)
STORED = 3_000


def measured_of(agent: Any, state: Any, obs: np.ndarray, action: np.ndarray, updates: int = 7) -> Any:
    """The drift of an agent whose buffer contains these actions, the oldest first."""
    discrete = action.dtype == np.int32
    fields = neoteny.transition_fields((5,), () if discrete else (2,), np.int32 if discrete else np.float32)
    buffer = neoteny.ReplayBuffer(STORED, fields, AgeWeightedSampler(neoteny.Uniform()), seed=0)
    zeros = np.zeros(STORED, np.float32)
    buffer.extend(obs=obs, action=action, reward=zeros, next_obs=obs, terminated=zeros > 0, truncated=zeros > 0)
    session: Any = SimpleNamespace(buffer=buffer, state=state, step=STORED)
    before = buffer.state()["rng"]
    measured = Drift(agent, unpacking(buffer.layout), seed=1).measure(session, updates)
    assert buffer.state()["rng"] == before
    return measured


def test_a_policy_that_moved_by_a_little_at_every_step_gives_the_parabola() -> None:
    """What was done at age a differs by a c, in units of the noise: the drift of a range is the mean of (a c)^2."""
    agent = make_agent(TD3Config((8,), exploration_noise=0.1), Problem((5,), False, 2, -BOUND, BOUND, 100))
    state = agent.init(jax.random.key(0))
    obs = np.random.default_rng(0).normal(size=(STORED, 5)).astype(np.float32)
    now = np.asarray(agent.policy(agent.policy_params(state), obs))
    ages = np.arange(STORED, 0, -1)
    away = np.stack([ages * 0.01 * 10.0, -ages * 0.01 * 10.0], axis=1)  # the noise is 0.1 of a scale of 100
    measured = measured_of(agent, state, obs, (now + away).astype(np.float32))
    bounds = age_ranges(STORED)
    means = measured.distances.mean(axis=1)
    assert (means >= ((bounds[:-1] + 1) * 0.01) ** 2 * 0.99).all()
    assert (means <= (bounds[1:] * 0.01) ** 2 * 1.01).all()
    for mean, low, high in zip(means, bounds[:-1], bounds[1:], strict=True):
        expected = (np.arange(low + 1, high + 1) * 0.01) ** 2
        assert mean == pytest.approx(expected.mean(), abs=4.5 * expected.std() / np.sqrt(32) + 1e-5)
    assert measured.far[-1] == 1.0
    numbers = measured.numbers()
    assert numbers["drift_stored"] == STORED
    assert numbers["drift/15"] == pytest.approx(means[15])
    assert numbers["drift_far/00"] == measured.far[0]


def test_greedy_actions_that_changed_at_an_age_disagree_from_there_on() -> None:
    config = DDQNConfig((8,), epsilon_end=0.0, exploration_fraction=0.0)
    agent = make_agent(config, Problem((5,), False, 3, None, None, 100))
    state = agent.init(jax.random.key(0))
    obs = np.random.default_rng(0).normal(size=(STORED, 5)).astype(np.float32)
    greedy = np.asarray(agent.policy(agent.policy_params(state), obs))
    bounds = age_ranges(STORED)
    changed = np.arange(STORED, 0, -1) > bounds[9]
    measured = measured_of(agent, state, obs, np.where(changed, (greedy + 1) % 3, greedy).astype(np.int32))
    np.testing.assert_array_equal(measured.distances.mean(axis=1), [0.0] * 9 + [1.0] * 7)
    np.testing.assert_array_equal(measured.far, [0.0] * 9 + [1.0] * 7)


def test_another_moment_looks_at_other_transitions_and_the_same_at_the_same() -> None:
    agent = make_agent(SACConfig(4, 1, 4, 1), Problem((5,), False, 2, -BOUND, BOUND, 100))
    state = agent.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(STORED, 5)).astype(np.float32), rng.uniform(-99, 99, (STORED, 2)).astype(np.float32)
    once, again, later = (measured_of(agent, state, obs, action, updates).distances for updates in (7, 7, 8))
    assert once.shape == (16, 32)
    np.testing.assert_array_equal(once, again)
    assert (once != later).any()


def config_of(steps: int, decay_steps: Any, probe_every: int, agent: Any = TINY) -> TrainConfig:
    return TrainConfig(
        "CartPole-v1" if isinstance(agent, DDQNConfig) else "Pendulum-v1",
        agent,
        ReplayConfig("swd", decay_steps=decay_steps, capacity=250),
        PlasticityConfig(probe_every),
        total_timesteps=steps,
        eval_every=0,
        log_every=50,
        checkpoint_every=1e9,
    )


def without_probes(run: Path) -> list[dict[str, Any]]:
    return [line for line in read_metrics(run) if not any(name.startswith("probe/") for name in line)]


@pytest.mark.parametrize("decay_steps", [pytest.param(100, marks=pytest.mark.slow), "drift"])
def test_training_is_the_same_with_and_without_measurements(
    decay_steps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurements, "HORIZON_EVERY", 70)
    runs = [
        neoteny.train(config_of(400, decay_steps, every), out=tmp_path / str(every), quiet=True) for every in (0, 60)
    ]
    lines = [line for line in read_metrics(runs[1]) if "drift/00" in line]
    assert [line["updates"] for line in lines] == [1, 60, 120, 180, 240, 300]
    assert [line["drift_stored"] for line in lines] == [100, 159, 219, 250, 250, 250]
    assert not any("drift/00" in line for line in read_metrics(runs[0]))
    assert without_probes(runs[0]) == without_probes(runs[1])
    digests = [facts_of(run)["checkpoint"]["digests"] for run in runs]
    assert digests[0] == digests[1]
    moves = [line for line in read_metrics(runs[0]) if "decay_steps" in line]
    assert [line["updates"] for line in moves] == ([1, 70, 140, 210, 280] if decay_steps == "drift" else [])
    assert all(2 <= line["decay_steps"] <= 250 for line in moves)


@pytest.mark.parametrize(
    "agent",
    [TINY, pytest.param(SACConfig(8, 1, 8, 1, batch_size=16, learning_starts=100), marks=pytest.mark.slow)],
    ids=["td3", "sac"],
)
def test_a_t_that_moved_goes_on_after_a_resume(agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between two changes, with draws made ahead by the T of then."""
    monkeypatch.setattr(measurements, "HORIZON_EVERY", 70)
    run = neoteny.train(config_of(400, "drift", 0, agent), out=tmp_path / "run", quiet=True)
    neoteny.resume(run, steps=530, quiet=True)
    whole = neoteny.train(config_of(530, "drift", 0, agent), out=tmp_path / "whole", quiet=True)
    assert facts_of(run)["checkpoint"]["digests"] == facts_of(whole)["checkpoint"]["digests"]
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_t_is_what_its_measurement_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the logged shares: the largest T is found by summing, and the next is a tenth of the way to it."""
    monkeypatch.setattr(measurements, "HORIZON_EVERY", 60)
    agent = dataclasses.replace(TINY, actor_lr=1e-2)
    run = neoteny.train(config_of(340, "drift", 60, agent), out=tmp_path / "run", quiet=True)
    probes = {line["updates"]: line for line in read_metrics(run) if "drift/00" in line}
    moves = {line["updates"]: line["decay_steps"] for line in read_metrics(run) if "decay_steps" in line}
    before = None
    for updates, decay_steps in moves.items():
        stored = probes[updates]["drift_stored"]
        far = np.array([probes[updates][f"drift_far/{index:02}"] for index in range(16)])
        ages, of_age = np.arange(1, stored + 1), np.repeat(far, np.diff(age_ranges(stored)))

        def drawn(steps: float, ages: Any = ages, of_age: Any = of_age) -> float:
            beyond = np.maximum(0.1, 1 - ages / max(steps, 2 / 0.9)) - 0.1
            return float(beyond @ of_age / beyond.sum())

        tried = np.geomspace(stored, stored / 100, 2_000)
        asked = next((steps for steps in tried if drawn(steps) <= far[0] + 0.1), stored / 100)
        following = asked if before is None else 0.9 * before + 0.1 * asked
        assert decay_steps == pytest.approx(np.clip(following, max(2, stored / 100), stored), rel=0.02)
        before = decay_steps
    assert len(moves) == 5


def test_an_agent_that_does_not_measure_drift_cannot_follow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from neoteny.training import setup

    def silent(*arguments: Any) -> Any:
        agent = make_agent(*arguments)
        return agent._replace(networks={n: dataclasses.replace(v, drift=None) for n, v in agent.networks.items()})

    monkeypatch.setattr(setup, "make_agent", silent)
    with pytest.raises(UsageError, match="--decay-steps drift needs an agent that measures drift, and td3 does not"):
        neoteny.train(config_of(300, "drift", 0), out=tmp_path / "run", quiet=True)
