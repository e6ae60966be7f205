"""Agents of every kind with small networks, transitions for them, and tiny runs: what the tests of remedies act on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import neoteny
from neoteny.agents.agent import TrainableNetwork
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.agents.learner import OTHER
from neoteny.agents.operating import operate
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.runs.inspect import facts_of
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig

TINY = TD3Config((16, 16), batch_size=16, learning_starts=100)
"""An agent for runs of a few hundred steps."""
RUNS: dict[str, tuple[Any, str]] = {
    "td3": (replace(TINY, tau=0.02), "Pendulum-v1"),
    "sac": (SACConfig(8, 1, 8, 1, batch_size=16, learning_starts=100, tau=0.02), "Pendulum-v1"),
    # With a constant epsilon: else it falls over the length that was planned, which is another one in a resumed run.
    "ddqn": (
        DDQNConfig(
            (16, 16), batch_size=16, learning_starts=100, utd=1.0, target_every=40, epsilon_start=0.1, epsilon_end=0.1
        ),
        "CartPole-v1",
    ),
}
"""Each agent in such a run, and where: after 100 steps it makes an update for each step."""
CONFIGS = {
    "td3": TD3Config((12, 10)),
    "sac": SACConfig(actor_width=6, critic_width=8, critic_blocks=2),
    "ddqn": DDQNConfig((12, 10)),
    "pixels": DDQNConfig(cnn_width=16),
}


def agent_of(name: str, remedies: Any = ()) -> Any:
    if name == "pixels":
        return make_agent(CONFIGS[name], Problem((4, 84, 84), True, 3, None, None, 100), remedies=remedies)
    bound = None if name == "ddqn" else np.ones(2, np.float32)
    low = None if bound is None else -bound
    return make_agent(CONFIGS[name], Problem((5,), False, 2, low, bound, 100), remedies=remedies)


def batch_of(name: str, size: int = 32, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    discrete = name in ("ddqn", "pixels")
    if name == "pixels":
        obs, after = (rng.integers(0, 256, (size, 4, 84, 84), dtype=np.uint8) for _ in range(2))
    else:
        obs, after = (rng.normal(size=(size, 5)).astype(np.float32) for _ in range(2))
    action = rng.integers(0, 2, size).astype(np.int32) if discrete else rng.uniform(-1, 1, (size, 2)).astype(np.float32)
    return {
        "obs": obs,
        "next_obs": after,
        "action": action,
        "reward": rng.normal(size=size).astype(np.float32),
        "terminated": np.zeros(size, np.float32),
        "truncated": np.zeros(size, np.float32),
    }


def trained(name: str, updates: int = 3, remedies: Any = ()) -> tuple[Any, Any]:
    """An agent and its state after a few updates, so that moments are not 0."""
    agent = agent_of(name, remedies)
    state = agent.init(jax.random.key(0))
    update = jax.jit(agent.update)
    for seed in range(updates):
        batch = batch_of(name, seed=seed) | second_batch_of(name, remedies, seed=seed + 100)
        state, _ = update(state, {key: value[None] for key, value in batch.items()})
    return agent, state


def second_batch_of(name: str, remedies: Any, size: int = 32, seed: int = 100) -> dict[str, Any]:
    """The fields of a second batch, if a remedy asks for one."""
    wanted = any(remedy.second_batch for remedy in remedies)
    return {OTHER + key: value for key, value in batch_of(name, size, seed).items()} if wanted else {}


def operated(config: Any, agent: Any, state: Any, batch: dict[str, Any], key: Any) -> Any:
    """The state after one surgery of the remedy that `config` describes."""
    remedy = config.build(100)
    return operate(remedy, (remedy,), agent, state, batch, key)


def params_of(state: Any, network: TrainableNetwork) -> Any:
    return getattr(state, network.name).params["params"]


def moments(opt: Any) -> list[Any]:
    is_adam = lambda node: isinstance(node, optax.ScaleByAdamState)  # noqa: E731
    return [node for node in jax.tree.leaves(opt, is_leaf=is_adam) if is_adam(node)]


def compilations(run: Path) -> int:
    """How often the update of a run was compiled, in its last life."""
    return [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()][-1]["compilations"]["update"]


def ends_the_same(run: Path, whole: Path) -> bool:
    """Whether two runs came to the same bits and wrote the same metrics."""
    digests = [facts_of(one)["checkpoint"]["digests"] for one in (run, whole)]
    return digests[0] == digests[1] and (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def run_with(
    tmp_path: Path, agent: Any, env: str, *remedies: Any, name: str = "run", steps: int = 300, probe_every: int = 0
) -> Path:
    config = TrainConfig(
        env,
        agent,
        ReplayConfig("swd", decay_steps=200, capacity=1_000),
        PlasticityConfig(probe_every),
        remedies,
        total_timesteps=steps,
        eval_every=0,
        checkpoint_every=1e9,
    )
    return neoteny.train(config, out=tmp_path / name, quiet=True)
