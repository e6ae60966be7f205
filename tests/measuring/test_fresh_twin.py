"""The fresh-twin gap of agents: known answers, training left as it is, and the same from a checkpoint afterwards."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import neoteny
from made_up import write_planned
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.experiments.plan import PlannedRun
from neoteny.lab.recovery import silenced
from neoteny.plasticity import fresh_twin
from neoteny.report.about import About
from neoteny.report.gather import gather
from neoteny.report.scores import read_runs
from neoteny.runs.inspect import facts_of
from neoteny.runs.records import read_metrics
from neoteny.runs.session import Session
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training.afterwards import fresh_twin_gaps
from neoteny.training.setup import Setup, set_up
from neoteny.training.updating import unpacking

AGENTS = {
    "td3": TD3Config((32, 32), batch_size=32, learning_starts=100),
    "sac": SACConfig(8, 1, 16, 1, batch_size=32, learning_starts=100, lr=1e-3),
    "ddqn": DDQNConfig(
        (32, 32), batch_size=32, learning_starts=100, utd=1.0, lr=1e-3, epsilon_start=0.1, epsilon_end=0.1
    ),  # whose exploration is not planned by the length of the run
}
SCALE, SHIFT = 50.0, 400.0
"""Of the made-up rewards: values are far from where new networks begin."""


def config_of(agent: str, **more: Any) -> TrainConfig:
    return TrainConfig(
        "CartPole-v1" if agent == "ddqn" else "Pendulum-v1",
        AGENTS[agent],
        ReplayConfig("swd", decay_steps=200, capacity=2_000),
        **{"total_timesteps": 400, "eval_every": 0, "log_every": 50, "checkpoint_every": 1e9, "threads": None, **more},
    )


def begun(agent: str, stored: int = 1_000) -> tuple[Setup, Session]:
    """A new agent whose replay has transitions in which the reward is a smooth function and every episode ends, so that
    the target is the reward."""
    setup, session = set_up(config_of(agent), None, None, 400)
    session.envs.close()
    rng, problem = np.random.default_rng(0), setup.problem
    for _ in range(stored):
        obs = rng.normal(size=(1, *problem.obs_shape))
        discrete = problem.action_low is None
        action = rng.integers(problem.num_actions, size=1) if discrete else rng.uniform(-2, 2, (1, problem.num_actions))
        reward = SHIFT + SCALE * np.sin(obs[:, 0] + 0.5 * np.ravel(action))
        session.buffer.add(obs=obs, action=action, reward=reward, next_obs=obs, terminated=[True], truncated=[False])
    return setup, session


def data_of(session: Session) -> dict[str, Any]:
    drawn = session.buffer.gather(np.arange(len(session.buffer)))
    return {k: np.asarray(v[0]) for k, v in unpacking(session.buffer.layout)(drawn.rows[None], {}).items()}


@pytest.mark.parametrize("agent", AGENTS)
def test_known_answers(agent: str) -> None:
    setup, session = begun(agent)
    twin = setup.fresh_twin
    own = session.state.critics.params
    same = twin.gap("critics", session, 1, 100, new=[own, own])
    assert same.gap == pytest.approx(1.0, abs=1e-6)
    new = twin.gap("critics", session, 1, 400)
    assert 0.5 < new.gap < 2.0
    if agent == "sac":  # which has no biases before its hidden units' LayerNorm that would silence them
        return
    dead = dataclasses.replace(session, state=silenced(setup.agent, session.state, data_of(session), 0.95, 1))
    killed = twin.gap("critics", dead, 1, 400)
    assert killed.gap > 2 * new.gap
    assert killed.gap > 2.0
    critics = 1 if agent == "ddqn" else 2
    assert new.new < 0.3 * critics * SCALE**2 / 2  # the new ones have learned what most of the variance is


def test_it_is_drawn_by_the_moment_alone() -> None:
    setup, session = begun("td3")
    before = jax.tree.map(np.array, session.state)
    once, again, later = (setup.fresh_twin.gap("critics", session, updates, 100) for updates in (7, 7, 8))
    assert once == again
    assert once != later
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.array, session.state))


def test_units_of_the_targets_leave_what_the_present_network_says() -> None:
    """Before the first update the copy's loss is that of the network itself, moved to the targets' mean."""
    setup, session = begun("td3")
    network = setup.agent.networks["critics"]
    own = jax.tree.map(lambda leaf: leaf * 3.0, session.state.critics.params)
    session.state = dataclasses.replace(session.state, critics=dataclasses.replace(session.state.critics, params=own))
    found = setup.fresh_twin.gap("critics", session, 3, 0)
    held, _ = fresh_twin.draw(np.random.default_rng([1, 6, 3]), 1_000, 0, 32)
    batch = {name: value[held.ravel()] for name, value in data_of(session).items()}
    values = np.asarray(network.forward(own, session.state, batch), np.float64)
    moved = values - values.mean() + batch["reward"].mean()  # terminated: the targets are the rewards
    assert found.present == pytest.approx(((moved - batch["reward"]) ** 2).sum(axis=0).mean(), rel=1e-4)


def test_with_little_stored_there_is_none() -> None:
    setup, session = begun("td3", stored=7)
    assert setup.fresh_twin.measure(session, 1) == {}


def without(run: Path) -> list[dict[str, Any]]:
    return [line for line in read_metrics(run) if not any(name.startswith("replay/") for name in line)]


@pytest.mark.parametrize("agent", ["td3", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sac", "ddqn"))])
def test_training_is_the_same_resumes_and_can_be_measured_afterwards(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("neoteny.measuring.fresh_twin.UPDATES", 20)
    monkeypatch.setattr("neoteny.measuring.fresh_twin.FreshTwin.gap.__defaults__", (20, None))
    runs = [
        neoteny.train(
            config_of(agent, plasticity=PlasticityConfig(0, every), keep_checkpoints=2),
            out=tmp_path / str(every),
            quiet=True,
        )
        for every in (0, 100)
    ]
    lines = [line for line in read_metrics(runs[1]) if "replay/critics/fresh_twin_gap" in line]
    assert [line["updates"] for line in lines] == [1, 100, 200, 300]
    assert without(runs[0]) == without(runs[1])
    assert facts_of(runs[0])["checkpoint"]["digests"] == facts_of(runs[1])["checkpoint"]["digests"]
    later, complaints = fresh_twin_gaps(runs[0])
    assert complaints == []
    assert [line["step"] for line in later] == [200, 400]
    assert [line["updates"] for line in later] == [100, 300]
    assert later[1].keys() == {"step", "updates", *(name for name in lines[3] if name.startswith("replay/"))}
    assert later[1]["updates"] == lines[3]["updates"]
    neoteny.resume(runs[1], steps=530, quiet=True)
    whole = neoteny.train(
        config_of(agent, plasticity=PlasticityConfig(0, 100), total_timesteps=530, keep_checkpoints=2),
        out=tmp_path / "whole",
        quiet=True,
    )
    assert facts_of(runs[1])["checkpoint"]["digests"] == facts_of(whole)["checkpoint"]["digests"]
    twins = [
        [line for line in read_metrics(run) if any(name.startswith("replay/") for name in line)]
        for run in (runs[1], whole)
    ]
    assert twins[0] == twins[1]
    assert main(["diagnose", str(runs[0]), "--fresh-twin", "--picture", str(tmp_path / "p.png")]) == 0
    said = capsys.readouterr().out
    assert "fresh-twin gap at each checkpoint" in said
    assert f"{later[1]['replay/critics/fresh_twin_gap']:.3g}" in said


def test_a_setting_below_0_is_refused() -> None:
    with pytest.raises(UsageError, match="--twin-every must be >= 0, got -1"):
        PlasticityConfig(twin_every=-1)


def test_a_damaged_checkpoint_is_said(tmp_path: Path) -> None:
    run = neoteny.train(config_of("td3", total_timesteps=120), out=tmp_path / "run", quiet=True)
    for manifest in (run / "checkpoint").glob("0*.json"):
        manifest.write_text(json.dumps({"sha256": "0", "checkpoint": {}}))
    lines, complaints = fresh_twin_gaps(run)
    assert lines == []
    assert "cannot be used" in complaints[0]


def test_the_report_shows_it(tmp_path: Path) -> None:
    config = TrainConfig("Hopper-v5", total_timesteps=20_000, threads=1)
    write_planned(tmp_path, PlannedRun("uniform", config), 100.0, {"replay/critics/fresh_twin_gap": 0.4})
    sections = gather(read_runs([tmp_path]), About()).sections
    panels = [panel for section in sections if section.name.startswith("plasticity") for panel in section.panels]
    (panel,) = (panel for panel in panels if panel.title == "fresh_twin_gap, replay")
    np.testing.assert_allclose(panel.curves[0].mean, 0.4)  # type: ignore[union-attr]
