"""Priming: on the first transitions alone, as many updates as asked for, and everything that other updates have."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

import neoteny
from neoteny.agents.agent import UpdateReport
from neoteny.agents.configs import DDQNConfig, TD3Config
from neoteny.errors import Interrupted, RunStopped, UsageError
from neoteny.remedies import ReDo
from neoteny.runs.checkpoint import digests
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.settings.identity import canonical
from neoteny.training import loop
from neoteny.training.callbacks import Callbacks
from neoteny.training.priming import next_count
from neoteny.training.progress import Progress
from neoteny.training.setup import set_up

TINY = TD3Config((16, 16), batch_size=8, learning_starts=60)


def config(**changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": "Pendulum-v1",
        "agent": TINY,
        "replay": ReplayConfig("swd", decay_steps=50, capacity=500),
        "plasticity": PlasticityConfig(0),
        "total_timesteps": 90,
        "eval_every": 0,
        "log_every": 100,
        "priming_updates": 230,
        "priming_steps": 20,
    }
    return TrainConfig(**{**settings, **changes})


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("every", [25, 30, 100, 1_000])
@pytest.mark.parametrize(("probe_every", "twin_every"), [(0, 0), (70, 0), (500, 0), (0, 90), (70, 600)])
def test_calls_end_at_every_moment_and_make_every_update(every: int, probe_every: int, twin_every: int) -> None:
    remedy = SimpleNamespace(done=lambda updates: updates // every)
    primed = config(priming_updates=1_234, plasticity=PlasticityConfig(probe_every, twin_every))
    setup: Any = SimpleNamespace(config=primed, problem=SimpleNamespace(pixels=False), remedies=(remedy,))
    ends, before = set(), 0
    while before < 1_234:
        count = next_count(before, setup)
        assert count in (1, 10, 100)
        before += count
        ends.add(before)
    assert before == 1_234
    assert set(range(every, 1_234, every)) <= ends
    for measured in (probe_every, twin_every):
        assert not measured or {1, *range(measured, 1_234, measured)} <= ends
    assert (every, probe_every, twin_every) != (1_000, 0, 0) or len(ends) == 12 + 3 + 4  # as few calls as can be


def test_draws_that_depend_on_errors_and_convolutions_are_one_at_a_time() -> None:
    for replay, pixels in (("per", False), ("swd-per", False), ("uniform", True)):
        primed = config(replay=ReplayConfig(replay, capacity=500))
        problem = SimpleNamespace(pixels=pixels)
        setup: Any = SimpleNamespace(config=primed, problem=problem, probes=None, remedies=())
        assert next_count(100, setup) == 1


@pytest.mark.slow
def test_the_updates_are_those_of_a_plain_loop_on_the_same_transitions(tmp_path: Path) -> None:
    """A session that is stepped by hand to the end of the collection, then updated one batch at a time."""
    primed = config(total_timesteps=20)
    run = neoteny.train(primed, out=tmp_path / "run", quiet=True)
    setup, session = set_up(dataclasses.replace(primed, threads=None), None, None, 20)
    rng = np.random.default_rng([primed.seed, 1])
    act = jax.jit(setup.agent.act)
    for step in range(20):
        params = setup.agent.policy_params(session.state)
        _, acting = act(params, session.state.acting, session.obs, np.float32(step))
        session.state = dataclasses.replace(session.state, acting=acting)
        action = rng.uniform(-2, 2, (1, 1)).astype(np.float32)
        after, reward, terminated, truncated, _ = session.envs.step(action)
        session.buffer.add(
            obs=session.obs, action=action, reward=reward, next_obs=after, terminated=terminated, truncated=truncated
        )
        session.obs = after
    one: Any = jax.jit(setup.agent.update)
    state = session.state
    for count in (100, 100, 10, 10, 10):
        drawn = session.buffer.sample(8, batches=count)
        fields = {name: np.asarray(drawn[name]).reshape(count, 1, 8, *drawn[name].shape[1:]) for name in drawn}
        for index in range(count):
            state, report = one(state, {name: value[index].astype(np.float32) for name, value in fields.items()})
            assert isinstance(report, UpdateReport)
    policy = neoteny.load_policy(run)
    obs = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    expected = setup.agent.policy(setup.agent.policy_params(state), obs)
    np.testing.assert_allclose(policy(obs), expected, rtol=1e-3, atol=1e-4)
    assert not np.allclose(policy(obs), setup.agent.policy(setup.agent.policy_params(session.state), obs), atol=0.01)


@pytest.mark.slow
def test_a_run_is_primed_once_and_then_trains_as_usual(tmp_path: Path, capsys: Any) -> None:
    run = neoteny.train(
        config(plasticity=PlasticityConfig(50), remedies=(ReDo(every=40),), log_every=30), out=tmp_path / "run"
    )
    logged = lines(run)
    assert [line["updates"] for line in logged if "remedy" in line] == [40, 80, 120, 160, 200, 240]
    measured = [line["updates"] for line in logged if "probe/critics/trainability" in line]
    assert measured == [1, 50, 100, 150, 200, 250]
    priming = [line for line in logged if line["step"] == 20]
    assert [line["updates"] for line in priming if "critic_loss" in line] == [30, 60, 90, 120, 150, 180, 210, 230]
    assert (logged[-1]["step"], logged[-1]["updates"], logged[-1]["realised_utd"]) == (90, 230 + 30, 1.0)
    shown = capsys.readouterr().out
    assert "priming: 230 / 230 updates  " in shown
    assert "       90 / 90" in shown


@pytest.mark.slow
def test_stopped_by_a_signal_amid_priming_it_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primed = config(priming_updates=1_230, plasticity=PlasticityConfig(500))
    whole = neoteny.train(primed, out=tmp_path / "whole", quiet=True)
    calls = []

    def count_and_stop(before: int, setup: Any) -> int:
        calls.append(before)
        if before >= 600:
            os.kill(os.getpid(), signal.SIGTERM)
        return next_count(before, setup)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "next_count", count_and_stop)
        with pytest.raises(Interrupted, match="Stopped at step 20; saved at step 20, to go on with: neoteny resume"):
            neoteny.train(primed, out=tmp_path / "stopped", quiet=True)
    assert calls[-1] == 600
    stopped = tmp_path / "stopped"
    neoteny.resume(stopped, quiet=True)
    assert (whole / "metrics.jsonl").read_bytes() == (stopped / "metrics.jsonl").read_bytes()
    assert digests(whole)[1] == digests(stopped)[1]


@pytest.mark.slow
@pytest.mark.parametrize("on_nan", ["halt", "skip"])
def test_updates_that_are_not_finite(on_nan: str, tmp_path: Path) -> None:
    def make_env() -> gym.Env:
        return gym.wrappers.TransformReward(gym.make("Pendulum-v1"), lambda reward: 1e30)  # whose square is infinite

    match = "an update at step 20" if on_nan == "halt" else "100 updates in a row, the last at step 20"
    with pytest.raises(RunStopped, match=match):
        neoteny.train(config(on_nan=on_nan), out=tmp_path / "run", make_env=make_env, quiet=True)
    with np.load(tmp_path / "run" / "nan" / "000000000020.npz", allow_pickle=False) as dumped:
        assert len(dumped.files) > 0


@pytest.mark.slow
def test_discrete_actions_are_collected_at_random(tmp_path: Path) -> None:
    """Whatever epsilon says: here it says never."""
    agent = DDQNConfig((8,), learning_starts=60, batch_size=8, epsilon_start=0.0, epsilon_end=0.0, utd=1.0)
    primed = config(env="CartPole-v1", agent=agent, num_envs=3, total_timesteps=30, priming_steps=30)
    setup, session = set_up(primed, None, None, 30)
    run = loop.Run(tmp_path / "run", primed, setup.facts)
    checkpoints = loop.Checkpoints(run.directory)
    loop.go_on(session, setup, run, Progress(primed, quiet=True), checkpoints, Callbacks())
    rng = np.random.default_rng([primed.seed, 1])
    expected = [rng.integers(2, size=3, dtype=np.int32) for _ in range(10)]
    stored = session.buffer.gather(np.arange(30))["action"].reshape(10, 3)[::-1]
    np.testing.assert_array_equal(np.sort(stored, axis=1), np.sort(expected, axis=1))
    assert (session.step, session.updates) == (30, 230)


def test_priming_that_could_not_be() -> None:
    for changes, said in (
        ({"priming_steps": 61}, "--priming-steps must be at most --learning-starts, 60, got 61"),
        ({"total_timesteps": 19}, "--priming-steps must be at most --steps, 19, got 20"),
        ({"replay": ReplayConfig(capacity=19)}, "--priming-steps must be at most --capacity, 19, got 20"),
        ({"priming_updates": 0}, "--priming-steps 20 has no use without --priming-updates"),
        ({"priming_updates": -1}, "--priming-updates must be >= 0, got -1"),
        ({"priming_steps": 0}, "--priming-steps must be >= 1, got 0"),
    ):
        with pytest.raises(UsageError, match=said):
            config(**changes)


def test_priming_is_part_of_an_id_and_its_absence_is_not() -> None:
    plain = TrainConfig("Hopper-v5")
    assert not {"priming_updates", "priming_steps"} & canonical(plain).keys()
    assert canonical(TrainConfig("Hopper-v5", priming_updates=100_000)) == canonical(plain) | {
        "priming_updates": 100_000
    }
    assert config().planned_updates(90) == 230 + 30
