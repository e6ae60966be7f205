"""A trained policy: saved without a pickle, loaded without the replay, called with observations."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from neoteny.agents.agent import Agent
from neoteny.agents.operating import shapes_after
from neoteny.agents.problem import NATURE_SIDE, Problem
from neoteny.agents.registry import make_agent
from neoteny.envs import is_pixels
from neoteny.errors import UsageError
from neoteny.machine.compiled import compiled
from neoteny.runs import policy_file
from neoteny.runs.policy_file import SavedPolicy
from neoteny.runs.records import read_config
from neoteny.runs.session import Best
from neoteny.settings.config import TrainConfig, check_seed
from neoteny.settings.identity import changed_settings, check_same_network

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
    pixels = is_pixels(obs)
    if not pixels and len(shape) != 1:
        also = ", or stacked uint8 frames," if config.agent.pixels else ""
        raise UsageError(f"{name} takes a vector{also} and {config.env} has {obs}: flatten it")
    if pixels and not config.agent.pixels:
        raise UsageError(f"{name} needs a vector of observations and {config.env} has {obs}: flatten it, or use ddqn")
    if pixels and (shape[0] > 16 or min(shape[-2:]) < (NATURE_SIDE if len(shape) == 3 else 8)):
        raise UsageError(
            f"{name} takes pixels as stacked frames, (stack, height, width) of at least 36 x 36 or (stack, channels, "
            f"height, width) of at least 8 x 8, and {config.env} has {shape}: wrap it with Gymnasium's "
            "GrayscaleObservation and FrameStackObservation"
        )
    small = pixels and min(shape[-2:]) < NATURE_SIDE
    for_others = config.agent.for_vectors if pixels else ()
    for unused in (*for_others, *(config.agent.for_pixels if small or not pixels else ())):
        if getattr(config.agent, unused) != getattr(type(config.agent)(), unused):
            kind = "small frames" if small else "pixels" if pixels else "a vector"
            raise UsageError(f"--{unused.replace('_', '-')} has no use here: {config.env} gives {kind}")
    if config.agent.discrete:
        if not isinstance(space, spaces.Discrete):
            raise UsageError(f"{name} needs discrete actions and {config.env} has {space}: use td3 or sac")
        if space.start != 0:
            said = f"{name} needs actions that begin at 0 and {config.env} has {space}"
            raise UsageError(f"{said}: wrap it to begin at 0")
        return Problem(shape, pixels, int(space.n), None, None, total)
    if not isinstance(space, spaces.Box):
        raise UsageError(f"{name} needs continuous actions (a Box) and {config.env} has {space}: use ddqn")
    if not space.is_bounded() or len(space.shape) != 1:
        raise UsageError(f"{name} needs a bounded vector of actions and {config.env} has {space}: wrap it to be one")
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return Problem(shape, pixels, int(space.shape[0]), low, high, total)


def _one_number(space: spaces.Space) -> str:
    """Actions of several discrete parts as one Discrete space: a number for each combination."""
    if isinstance(space, spaces.MultiDiscrete):
        return f"Discrete({np.prod(space.nvec)}), a number for each combination,"
    return f"Discrete({2 ** np.prod(space.shape)})" if isinstance(space, spaces.MultiBinary) else "Discrete"


def save_policy(directory: Path, config: TrainConfig, agent: Agent, state: Any, problem: Problem, updates: int) -> None:
    """Write the policy of `state`, after so many updates, into the run's directory."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(agent.policy_params(state))]
    policy_file.write_policy(directory, SavedPolicy(problem, updates, leaves, config.to_json()))


def save_best(directory: Path, config: TrainConfig, problem: Problem, best: Best | None) -> None:
    """Write the best policy beside the last; if there is none, remove one that is there."""
    if best is None:
        policy_file.remove_best(directory)
    else:
        saved = SavedPolicy(problem, best.updates, best.leaves, config.to_json())
        policy_file.write_policy(directory, saved, best=True)


def load_policy(run: str | Path, network: Any = None, seed: int = 0, best: bool = False) -> Policy:
    """The policy of a run: ``policy(obs)`` gives actions, with its normaliser inside.

    obs: one observation, or a batch of them; a dict, if the environment's observations are dicts.
    ``policy(obs, deterministic=False)`` adds the noise that the agent explores with; it comes from `seed`.
    network: the user's own module, if the run was trained with one. best: the policy of the evaluation with the largest
    mean return, instead of the last one.
    """
    check_seed(seed)
    if said := policy_file.caution(Path(run)):
        warnings.warn(said, stacklevel=2)
    return load_with_problem(Path(run), network, seed, best)[0]


def load_with_problem(
    directory: Path, network: Any = None, seed: int = 0, best: bool = False
) -> tuple[Policy, Problem]:
    """The policy of a run, the last or the best, and what it was trained for."""
    config, facts = read_config(directory)
    check_same_network(directory, facts["environment"].get("network"), network)
    problem, updates, leaves, made_with = policy_file.read_policy(directory, best)
    for name, was, now in changed_settings(made_with, facts["config"]):
        raise UsageError(
            f"{directory / 'policy'} is the policy of another run: there {name} is {was}, and in this run it is {now}"
        )
    remedies = config.build_remedies(facts["environment"].get("horizon", config.total_timesteps))
    agent = make_agent(config.agent, problem, network, remedies)
    shapes = agent.policy_params(shapes_after(agent, remedies, updates))
    _check_weights(directory, leaves, jax.tree.leaves(shapes))
    params = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
    return as_policy(agent, params, problem, facts["environment"].get("observation_keys"), seed), problem


def _check_weights(directory: Path, leaves: list[NDArray[Any]], shapes: list[Any]) -> None:
    """Refuse weights of another network than the run's, and such as are not finite."""
    leaf_shapes = [f"{leaf.dtype}{leaf.shape}" for leaf in leaves]
    if leaf_shapes != [f"{shape.dtype}{shape.shape}" for shape in shapes]:
        raise UsageError(f"{directory / 'policy'} does not fit the run's config.json: it is the policy of another run")
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise UsageError(f"{directory / 'policy'} is damaged: it has weights that are not finite")


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
