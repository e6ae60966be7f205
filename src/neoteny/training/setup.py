"""What a run is made of: its environments, its replay, its agent and the compiled functions."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from gymnasium.vector import SyncVectorEnv

from neoteny import envs
from neoteny.agents.agent import Agent, check_state
from neoteny.agents.learner import Remedy
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.machine.compiled import compiled, keep_compiled, start_on
from neoteny.measuring.drift import Drift
from neoteny.measuring.fresh_twin import FreshTwin
from neoteny.measuring.probes import Probes
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.frames import Frames
from neoteny.replay.registry import make_sampler
from neoteny.replay.storage import transition_fields
from neoteny.runs.policy import problem_of
from neoteny.runs.session import Session
from neoteny.settings.config import TrainConfig
from neoteny.settings.identity import describe_own
from neoteny.training.own_envs import each_new, first_observations
from neoteny.training.updating import compiled_surgeries, compiled_update, unpacking


@dataclass(frozen=True)
class Setup:
    """What a run is made of and does not change: its configuration, its environments, its compiled functions."""

    config: TrainConfig
    agent: Agent
    problem: Problem
    act: Any
    observe: Any
    """`Agent.observe`, compiled; None if the agent has none."""
    update: Any
    evaluation: Any
    remedies: tuple[Remedy, ...]
    surgeries: tuple[tuple[Remedy, Any], ...]
    """The remedies that do surgery, each with its compiled function (state, rows, pixels, key, turn) -> state."""
    probes: Probes | None
    drift: Drift | None
    """Measured with the probes, and where T follows from it."""
    fresh_twin: FreshTwin
    """Measured every --twin-every updates, and of checkpoints afterwards; compiled when it is first asked for."""
    evaluation_envs: SyncVectorEnv | None
    facts: dict[str, Any]
    """What is recorded of its surroundings."""

    def compilations(self) -> dict[str, int]:
        """How often each was compiled: once, if all is well."""
        return {name: getattr(self, name)._cache_size() for name in ("act", "update", "evaluation")}


def set_up(config: TrainConfig, make_env: envs.MakeEnv | None, network: Any, horizon: int) -> tuple[Setup, Session]:
    """Everything as it is before the first step. horizon: the steps that schedules over the run are made for."""
    backend = start_on(config.device)
    keep_compiled()
    make_env = each_new(make_env)
    options = envs.EnvOptions(sticky=config.sticky, action_repeat=config.action_repeat)
    vector_env = envs.make(config.env, config.num_envs, options, make_env)
    problem = dataclasses.replace(problem_of(vector_env, config), total_timesteps=horizon, num_envs=config.num_envs)
    sampler = make_sampler(
        config.replay.replay, config.replay.replay_sampler, config.default_decay_steps(), config.replay.numbers()
    )
    try:
        buffer = _make_buffer(config, problem, sampler)
    except (ValueError, MemoryError) as error:
        raise UsageError(str(error)) from error
    facts = {
        "versions": envs.versions(),
        "observation": str(vector_env.single_observation_space),
        "observation_keys": envs.observation_keys(vector_env),
        "make_env": None,
        "network": None,
        **describe_own(make_env, vector_env.envs[0], network),
        "backend": backend,
        "horizon": horizon,
    }
    remedies = config.build_remedies(horizon)
    agent = make_agent(config.agent, problem, network, remedies)
    state = _begin(agent, config)
    unpack = unpacking(buffer.layout)

    setup = Setup(
        config,
        agent,
        problem,
        compiled(agent.act),
        None if agent.observe is None else compiled(agent.observe),
        compiled_update(agent, unpack),
        compiled(agent.policy),
        remedies,
        compiled_surgeries(remedies, agent, unpack),
        Probes(agent, unpack, config.seed) if config.plasticity.probe_every else None,
        Drift(agent, unpack, config.seed) if config.plasticity.probe_every or config.follows_drift else None,
        FreshTwin(agent, unpack, config.seed, config.agent.batch_size, problem.pixels),
        _evaluation_envs(config, make_env),
        facts,
    )
    session = Session(
        state=state,
        buffer=buffer,
        envs=vector_env,
        obs=first_observations(vector_env, seeds(config)),
        rng=np.random.default_rng([config.seed, 1]),
    )
    return setup, session


def seeds(config: TrainConfig, *more: int) -> list[int | None]:
    """A seed for each environment."""
    return [int(s) for s in np.random.SeedSequence([config.seed, 0, *more]).generate_state(config.num_envs)]


def _begin(agent: Agent, config: TrainConfig) -> Any:
    """Return the agent's first state, after a look at whether agent and remedies fit each other."""
    for remedy in config.remedies:
        remedy.check_agent(agent)
    if config.follows_drift and all(network.drift is None for network in agent.networks.values()):
        raise UsageError(f"--decay-steps drift needs an agent that measures drift, and {config.agent_name} does not")
    state = agent.init(jax.random.key(config.seed))
    check_state(state, agent.networks)
    return state


def _make_buffer(config: TrainConfig, problem: Problem, sampler: Any) -> ReplayBuffer:
    discrete = problem.action_low is None
    action_shape: tuple[int, ...] = () if discrete else (problem.num_actions,)
    fields: dict[str, Any] = transition_fields(problem.obs_shape, action_shape, np.int32 if discrete else np.float32)
    if problem.pixels:
        del fields["next_obs"]
        fields["obs"] = frames_of(problem, config.replay.capacity)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*still changes up to age")  # `cautions` says so in words
        return ReplayBuffer(
            config.replay.capacity,
            fields,
            sampler,
            num_envs=config.num_envs,
            n_step=config.replay.n_step,
            gamma=config.agent.gamma if config.replay.n_step > 1 else None,
            seed=config.seed,
        )


def frames_of(problem: Problem, capacity: int) -> Frames:
    """The stored frames of a problem; small ones with room for the final frame of every episode, however short."""
    finals = -(-capacity // 2) if problem.small_frames else None  # in Seaquest an episode may end after 2 steps
    return Frames(problem.obs_shape[1:], problem.obs_shape[0], finals)


def _evaluation_envs(config: TrainConfig, make_env: envs.MakeEnv | None) -> SyncVectorEnv | None:
    if not config.eval_every:
        return None
    options = envs.EnvOptions(sticky=config.sticky, action_repeat=config.action_repeat, evaluation=True)
    return envs.make(config.env, config.eval_episodes, options, make_env)
