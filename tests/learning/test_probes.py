"""Each agent finds the values and actions that are known, in seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import neoteny
from neoteny.agents.configs import AgentConfig, DDQNConfig, SACConfig, TD3Config
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training import setup
from probes import Aim, Endless, Pixels, TwoSteps

GAMMA = 0.8
TD3 = TD3Config((32, 32), actor_lr=3e-3, critic_lr=3e-3, gamma=GAMMA, batch_size=64, tau=0.05, learning_starts=64)
SAC = SACConfig(
    32, 1, 32, 1, lr=3e-3, weight_decay=0, gamma=GAMMA, batch_size=64, tau=0.05, alpha=1e-3, tune_alpha=False,
    learning_starts=64, normalise=False,
)  # fmt: skip
DDQN = DDQNConfig((32, 32), lr=3e-3, gamma=GAMMA, batch_size=64, target_every=20, learning_starts=64, utd=1.0)
AGENTS = {"td3": TD3, "sac": SAC, "ddqn": DDQN}
REPLAYS = {
    "uniform": ReplayConfig(capacity=5_000),
    "swd": ReplayConfig("swd", decay_steps=500, capacity=5_000),
    "swd-per": ReplayConfig("swd-per", decay_steps=500, capacity=5_000),
    "n-step": ReplayConfig(n_step=3, capacity=5_000),
}


def learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: AgentConfig, make_env: Any, steps: int, **options: Any
) -> tuple[Any, Path]:
    """Train, and return the last state with the run."""
    sessions = []
    plain = setup.Session

    def remembered(*args: Any, **kwargs: Any) -> Any:
        sessions.append(plain(*args, **kwargs))
        return sessions[-1]

    monkeypatch.setattr(setup, "Session", remembered)
    unmeasured = PlasticityConfig(probe_every=0)
    config = TrainConfig("probe", agent, plasticity=unmeasured, total_timesteps=steps, eval_every=0, **options)
    run = neoteny.train(config, out=tmp_path / "run", make_env=make_env, quiet=True)
    return sessions[0].state, run


def values(agent: AgentConfig, state: Any, obs: float) -> float:
    """The agent's value of an observation (of the action it would take)."""
    from neoteny.networks import MLP, ActionValues, Critics, SimBa

    x = jnp.array([[obs]])
    if isinstance(agent, DDQNConfig):
        return float(ActionValues(MLP(agent.widths), 2).apply(state.online, x).max())
    trunk = MLP(agent.widths) if isinstance(agent, TD3Config) else SimBa(agent.critic_width, agent.critic_blocks)
    return float(Critics(trunk).apply(state.critics, x, jnp.array([[0.3]])).mean())


@pytest.mark.slow
@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize("name", AGENTS)
def test_values_of_two_steps(name: str, replay: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = AGENTS[name]
    make_env = lambda: TwoSteps(name == "ddqn")  # noqa: E731
    state, _ = learn(tmp_path, monkeypatch, agent, make_env, 1_500, replay=REPLAYS[replay])
    assert values(agent, state, 1.0) == pytest.approx(1.0, abs=0.1)
    assert values(agent, state, 0.0) == pytest.approx(GAMMA, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("name", AGENTS)
def test_truncation_is_bootstrapped_through(
    name: str, num_envs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AGENTS[name]
    make_env = lambda: Endless(name == "ddqn")  # noqa: E731
    state, _ = learn(tmp_path, monkeypatch, agent, make_env, 3_000, replay=REPLAYS["uniform"], num_envs=num_envs)
    assert values(agent, state, 0.0) == pytest.approx(1 / (1 - GAMMA), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
def test_the_best_action_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = learn(tmp_path, monkeypatch, AGENTS[name], lambda: Aim(name == "ddqn"), 2_000, replay=REPLAYS["swd"])
    action = neoteny.load_policy(run)(np.array([0.0]))
    assert action == (1 if name == "ddqn" else pytest.approx([0.5], abs=0.2))


@pytest.mark.slow
def test_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = replace(DDQN, widths=DDQNConfig().widths, batch_size=16, lr=1e-3, gamma=0.5, utd=0.5, cnn_width=32)
    _, run = learn(tmp_path, monkeypatch, agent, Pixels, 400, replay=REPLAYS["swd"])
    policy = neoteny.load_policy(run)
    stacks = np.zeros((2, 4, 84, 84), np.uint8)
    stacks[1, -1] = 255
    assert policy(stacks).tolist() == [0, 1]
