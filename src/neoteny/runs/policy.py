"""A trained policy: saved without a pickle, loaded without the replay, called with observations."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from neoteny.agents.agent import Agent, Problem
from neoteny.agents.configs import DDQNConfig
from neoteny.agents.learner import shapes_after
from neoteny.agents.registry import make_agent
from neoteny.envs import is_pixels
from neoteny.errors import UsageError
from neoteny.machine.compiled import compiled
from neoteny.runs.files import write
from neoteny.runs.run import read_config
from neoteny.settings.config import TrainConfig
from neoteny.settings.identity import check_same_network

Policy = Callable[..., NDArray[Any]]


def problem_of(env: gym.vector.VectorEnv, config: TrainConfig) -> Problem:
    """What the agent must know of `env`, or an error if it cannot act there."""
    space, obs = env.single_action_space, env.single_observation_space
    name = config.agent_name
    total, shape = config.total_timesteps, tuple(obs.shape or ())
    if not isinstance(space, (spaces.Box, spaces.Discrete)):
        raise UsageError(
            f"{config.env} has the actions {space}, which no agent takes: wrap it with Gymnasium's TransformAction, so "
            f"that they are {_one_number(space)} for ddqn, or a bounded Box for td3 and sac"
        )
    if name == "ddqn":
        if not isinstance(space, spaces.Discrete):
            raise UsageError(f"ddqn needs discrete actions and {config.env} has {space}: use td3 or sac")
        if space.start != 0:
            raise UsageError(f"ddqn needs actions that begin at 0 and {config.env} has {space}: wrap it to begin at 0")
        if is_pixels(obs) and (shape[0] > 16 or min(shape[1:]) < 36):
            raise UsageError(
                f"ddqn takes pixels as stacked frames, (stack, height, width) of at least 36 x 36, and {config.env} "
                f"has {shape}: wrap it with Gymnasium's GrayscaleObservation and FrameStackObservation"
            )
        unused = "widths" if is_pixels(obs) else "cnn_width"
        if getattr(config.agent, unused) != getattr(DDQNConfig(), unused):
            kind = "pixels" if is_pixels(obs) else "a vector"
            raise UsageError(f"--{unused.replace('_', '-')} has no use here: {config.env} gives {kind}")
        if not is_pixels(obs) and len(shape) != 1:
            raise UsageError(f"ddqn takes a vector, or stacked uint8 frames, and {config.env} has {obs}: flatten it")
        return Problem(shape, is_pixels(obs), int(space.n), None, None, total)
    if not isinstance(space, spaces.Box):
        raise UsageError(f"{name} needs continuous actions (a Box) and {config.env} has {space}: use ddqn")
    if not space.is_bounded() or len(space.shape) != 1:
        raise UsageError(f"{name} needs a bounded vector of actions and {config.env} has {space}: wrap it to be one")
    if is_pixels(obs) or len(shape) != 1:
        raise UsageError(f"{name} needs a vector of observations and {config.env} has {obs}: flatten it, or use ddqn")
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return Problem(shape, False, int(space.shape[0]), low, high, total)


def _one_number(space: spaces.Space) -> str:
    """Actions of several discrete parts as one Discrete space: a number for each combination."""
    if isinstance(space, spaces.MultiDiscrete):
        return f"Discrete({np.prod(space.nvec)}), a number for each combination,"
    return f"Discrete({2 ** np.prod(space.shape)})" if isinstance(space, spaces.MultiBinary) else "Discrete"


def save_policy(directory: Path, agent: Agent, state: Any, problem: Problem, updates: int) -> None:
    """Write the policy of `state`, after so many updates, into the run's directory: arrays, and JSON about them."""
    folder = directory / "policy"
    folder.mkdir(exist_ok=True)
    leaves = jax.tree.leaves(agent.policy_params(state))
    named: dict[str, Any] = {f"leaf_{index}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
    params = io.BytesIO()
    np.savez(params, **named)
    facts = {
        "obs_shape": problem.obs_shape,
        "pixels": problem.pixels,
        "num_actions": problem.num_actions,
        "action_low": None if problem.action_low is None else problem.action_low.tolist(),
        "action_high": None if problem.action_high is None else problem.action_high.tolist(),
        "total_timesteps": problem.total_timesteps,
        "updates": updates,
    }
    write(folder / "problem.json", (json.dumps(facts) + "\n").encode())
    write(folder / "params.npz", params.getvalue())


def has_policy(run: Path) -> bool:
    """Whether a run has a policy yet."""
    return (run / "policy" / "params.npz").exists()


def load_policy(run: str | Path, network: Any = None, seed: int = 0) -> Policy:
    """The policy of a run: ``policy(obs)`` gives actions, with its normaliser inside.

    obs: one observation, or a batch of them; a dict, if the environment's observations are dicts.
    ``policy(obs, deterministic=False)`` adds the noise that the agent explores with; it comes from `seed`.
    network: the user's own module, if the run was trained with one.
    """
    directory = Path(run)
    config, facts = read_config(directory)
    check_same_network(directory, facts["environment"]["network"], network)
    folder = directory / "policy"
    if not has_policy(directory):
        raise UsageError(f"{directory} has no policy yet: it is written at the run's first evaluation")
    saved_problem = json.loads((folder / "problem.json").read_text())
    for name in ("action_low", "action_high"):
        bound = saved_problem[name]
        saved_problem[name] = None if bound is None else np.array(bound, np.float32)
    if saved_problem.pop("injected", False):
        raise UsageError(f"{folder} was saved by an earlier version after a plasticity injection: train the run anew")
    updates = saved_problem.pop("updates", 0)
    problem = Problem(**{**saved_problem, "obs_shape": tuple(saved_problem["obs_shape"])})
    remedies = config.build_remedies(facts["environment"]["horizon"])
    agent = make_agent(config.agent, problem, network, remedies)
    shapes = agent.policy_params(shapes_after(agent, remedies, updates))
    with np.load(folder / "params.npz", allow_pickle=False) as saved:
        leaves = [saved[f"leaf_{index}"] for index in range(len(saved.files))]
    params = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
    return as_policy(agent, params, problem, facts["environment"]["observation_keys"], seed)


def as_policy(agent: Agent, params: Any, problem: Problem, keys: list[str] | None = None, seed: int = 0) -> Policy:
    """A callable over `agent`'s policy with these parameters; `keys`: the parts of a dict of observations, in order."""
    act, sample = compiled(agent.policy), compiled(agent.sample)
    noise = (jax.random.fold_in(jax.random.key(seed), count) for count in itertools.count())

    def policy(obs: ArrayLike | Mapping[str, ArrayLike], deterministic: bool = True) -> NDArray[Any]:
        flat = _flattened(obs, keys, problem.obs_shape) if isinstance(obs, Mapping) else obs
        batch = np.asarray(flat, np.uint8 if problem.pixels else np.float32)
        single = batch.shape == problem.obs_shape
        if not single and batch.shape[1:] != problem.obs_shape:
            raise UsageError(f"an observation has shape {problem.obs_shape}, got {batch.shape}")
        batch = batch[None] if single else batch
        actions = np.asarray(act(params, batch) if deterministic else sample(params, batch, next(noise)))
        return actions[0] if single else actions

    return policy


def _flattened(obs: Mapping[str, ArrayLike], keys: list[str] | None, shape: tuple[int, ...]) -> NDArray[Any]:
    """A dict of vectors or numbers, or of batches of them, as one vector or one batch, as in training."""
    if keys is None or set(obs) != set(keys):
        takes = "an array" if keys is None else f"a dict with the parts {', '.join(keys)}"
        raise UsageError(f"an observation of this policy is {takes}, got a dict with {', '.join(obs) or 'nothing'}")
    parts = [np.asarray(obs[name]) for name in keys]
    if max(part.ndim for part in parts) < 2 and sum(part.size for part in parts) == shape[0]:
        return np.concatenate([part.ravel() for part in parts])
    try:
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    except (TypeError, ValueError) as error:
        got = ", ".join(f"{name} {part.shape}" for name, part in zip(keys, parts, strict=True))
        raise UsageError(f"an observation has {shape[0]} numbers in all its parts, got the shapes {got}") from error
