"""The loop, the only one: act, dispatch the update, step the environments, add."""

from __future__ import annotations

import dataclasses
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from neoteny import envs
from neoteny.agents.agent import Agent, Problem, Report
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.replay.batch import Batch
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.frames import Frames
from neoteny.replay.registry import make_sampler
from neoteny.replay.storage import Layout, transition_fields
from neoteny.training.config import TrainConfig, limit_threads, threads_in_force
from neoteny.training.evaluate import ATARI_EPSILON, evaluate, finished
from neoteny.training.policy import problem_of, save_policy
from neoteny.training.progress import Progress
from neoteny.training.run import Run


@dataclass
class Session:
    """Everything a run needs to go on."""

    state: Any
    buffer: ReplayBuffer
    envs: SyncVectorEnv
    obs: NDArray[Any]
    rng: np.random.Generator
    """Of the random actions before learning starts."""
    step: int = 0
    ticks: int = 0
    updates: int = 0
    report: Report | None = None
    """Of the last updates."""
    unreported: tuple[Batch, Report] | None = None
    """A batch whose errors the replay has not been told yet: the update may still be running."""


@dataclass(frozen=True)
class Compiled:
    """The agent's functions, compiled for this run."""

    agent: Agent
    problem: Problem
    act: Any
    update: Any
    evaluation: Any

    def compilations(self) -> dict[str, int]:
        """How often each was compiled: once, if all is well."""
        return {name: getattr(self, name)._cache_size() for name in ("act", "update", "evaluation")}


def train(
    config: TrainConfig,
    *,
    out: str | Path | None = None,
    make_env: envs.MakeEnv | None = None,
    network: Any = None,
    quiet: bool = False,
) -> Path:
    """Train, and return the run's directory.

    out: that directory, if not the default one. make_env: a function that makes an environment, instead of config.env,
    which then only names it. network: a Flax module from observations to features, instead of the agent's own trunk.
    """
    limit_threads(config)
    config = dataclasses.replace(config, threads=threads_in_force())  # what is recorded is what is so
    options = envs.EnvOptions(sticky=config.sticky, action_repeat=config.action_repeat)
    made = envs.make(config.env, config.num_envs, options, make_env)
    problem = problem_of(made, config)
    sampler = make_sampler(
        config.replay.replay, config.replay.replay_sampler, config.default_decay_steps(), config.replay.numbers()
    )
    try:
        buffer = _make_buffer(config, problem, sampler)
    except (ValueError, MemoryError) as error:
        raise UsageError(str(error)) from error
    environment = {
        "versions": envs.versions(),
        "observation": str(made.single_observation_space),
        "observation_keys": envs.observation_keys(made),
        "make_env": make_env is not None,
        "network": None if network is None else repr(network),
        "backend": jax.default_backend(),
    }
    agent = make_agent(config.agent, problem, network)
    compiled = _compile(agent, problem, buffer.layout, config)
    session = Session(
        state=agent.init(jax.random.key(config.seed)),
        buffer=buffer,
        envs=made,
        obs=made.reset(seed=np.random.SeedSequence([config.seed, 0]).generate_state(config.num_envs).tolist())[0],
        rng=np.random.default_rng([config.seed, 1]),
    )
    evaluation_envs = _evaluation_envs(config, make_env)
    run = Run(Path(out) if out is not None else config.default_directory(), config, environment)
    progress = Progress(config, quiet)
    try:
        while session.step < config.total_timesteps:
            tick(session, compiled, config, run, progress)
            if evaluation_envs is not None and config.eval_every and _crossed(session, config.eval_every, config):
                _evaluate(session, compiled, config, run, progress, evaluation_envs)
        if not _crossed(session, config.log_every, config):
            _log(session, config, run, progress)
        save_policy(run.directory, agent, session.state, problem)
        run.log_timing(session.step, compilations=compiled.compilations())
        run.finish()
        progress.done()
    finally:
        run.close()
        made.close()
        if evaluation_envs is not None:
            evaluation_envs.close()
    return run.directory


def tick(session: Session, compiled: Compiled, config: TrainConfig, run: Run, progress: Progress) -> None:
    """One step of every environment, and the updates that are due."""
    obs = session.obs if compiled.problem.pixels else session.obs.astype(np.float32)
    learning = session.step >= config.agent.learning_starts
    actions, acting = compiled.act(session.state, obs, np.float32(session.step))
    session.state = dataclasses.replace(session.state, acting=acting)
    # Reading the actions waits for the update before, so what it was given may be written over from here on.
    action = np.asarray(actions)
    low, high = compiled.problem.action_low, compiled.problem.action_high
    if not learning and low is not None and high is not None:
        action = session.rng.uniform(low, high, (config.num_envs, len(low))).astype(np.float32)
    _report_errors(session)
    _, ticks_between = config.updates()
    if learning and session.ticks % ticks_between == 0:
        _dispatch_updates(session, compiled, config)
    after, reward, terminated, truncated, info = session.envs.step(action)
    next_obs = _true_next(after, terminated | truncated, info)
    session.buffer.add(
        obs=session.obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated
    )
    session.obs = after
    session.ticks += 1
    session.step += config.num_envs
    for _, episode in finished(info):
        run.log(session.step, episode_return=episode["r"], episode_length=episode["l"])
        progress.episode(episode["r"])
    logging = _crossed(session, config.log_every, config)
    if logging:
        _log(session, config, run, progress)
    progress.tick(session.step, logging)


def _dispatch_updates(session: Session, compiled: Compiled, config: TrainConfig) -> None:
    """Start every update of this tick in one compiled call, each with a fresh batch."""
    count, _ = config.updates()
    size = config.agent.batch_size
    batch = session.buffer.sample(size, batches=count)
    rows = batch.rows.reshape(count, size, -1)
    weights = None if batch.weights is None else batch.weights.astype(np.float32).reshape(count, size)
    pixels = {name: value.reshape(count, size, *value.shape[1:]) for name, value in batch.pixels.items()}
    session.state, report = compiled.update(session.state, rows, weights, pixels)
    session.updates += count
    session.report = report
    if batch.weights is not None:
        session.unreported = (batch, report)


def _report_errors(session: Session) -> None:
    """Tell prioritised replay the errors of the update before, which has ended by now."""
    if session.unreported is not None:
        batch, report = session.unreported
        session.buffer.update_priorities(batch, np.asarray(report.errors).ravel())
        session.unreported = None


def _true_next(after: NDArray[Any], ended: NDArray[np.bool_], info: dict[str, Any]) -> NDArray[Any]:
    """What followed each action: the final observation where an episode ended, and not the reset's."""
    if not ended.any():
        return after
    true = after.copy()
    for index in np.flatnonzero(ended):
        true[index] = info["final_obs"][index]
    return true


def _log(session: Session, config: TrainConfig, run: Run, progress: Progress) -> None:
    values = session.buffer.statistics()
    if session.report is not None:
        values |= {name: float(value) for name, value in session.report.metrics.items()}
    learned = session.step - config.agent.learning_starts
    values["realised_utd"] = session.updates / learned if learned > 0 else 0.0
    frames = session.step * envs.frames_per_step(config.env, config.action_repeat)
    run.log(session.step, frames=frames, updates=session.updates, **values)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    run.log_timing(session.step, steps_per_second=round(session.step / run.seconds, 2), peak_resident_mb=resident)
    progress.metrics(values)


def _evaluate(
    session: Session, compiled: Compiled, config: TrainConfig, run: Run, progress: Progress, where: SyncVectorEnv
) -> None:
    agent = compiled.agent
    params = agent.policy_params(session.state)
    epsilon = ATARI_EPSILON if config.env.startswith("ALE/") else 0.0

    def policy(obs: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(compiled.evaluation(params, obs if compiled.problem.pixels else obs.astype(np.float32)))

    returns = evaluate(policy, where, config.seed, session.step, epsilon)
    run.log(session.step, eval_return=float(np.mean(returns)), eval_returns=returns)
    progress.evaluated(float(np.mean(returns)))
    save_policy(run.directory, agent, session.state, compiled.problem)


def _compile(agent: Agent, problem: Problem, layout: Layout, config: TrainConfig) -> Compiled:
    def update(state: Any, rows: Any, weights: Any, pixels: dict[str, Any]) -> tuple[Any, Report]:
        count, size, width = rows.shape
        flat = rows.reshape(count * size, width)
        batch = {}
        for name in layout.fields:
            value = layout.unpack(flat, name)
            batch[name] = value.reshape(count, size, *value.shape[1:])
        if weights is not None:
            batch["weight"] = weights
        return agent.update(state, {**batch, **pixels})

    return Compiled(agent, problem, jax.jit(agent.act), jax.jit(update, donate_argnums=0), jax.jit(agent.policy))


def _make_buffer(config: TrainConfig, problem: Problem, sampler: Any) -> ReplayBuffer:
    discrete = problem.action_low is None
    action_shape: tuple[int, ...] = () if discrete else (problem.num_actions,)
    fields: dict[str, Any] = transition_fields(problem.obs_shape, action_shape, np.int32 if discrete else np.float32)
    if problem.pixels:
        del fields["next_obs"]
        fields["obs"] = Frames(problem.obs_shape[1:], problem.obs_shape[0])
    return ReplayBuffer(
        config.replay.capacity,
        fields,
        sampler,
        num_envs=config.num_envs,
        n_step=config.replay.n_step,
        gamma=config.agent.gamma if config.replay.n_step > 1 else None,
        seed=config.seed,
    )


def _evaluation_envs(config: TrainConfig, make_env: envs.MakeEnv | None) -> SyncVectorEnv | None:
    if not config.eval_every:
        return None
    options = envs.EnvOptions(sticky=config.sticky, action_repeat=config.action_repeat, evaluation=True)
    return envs.make(config.env, config.eval_episodes, options, make_env)


def _crossed(session: Session, every: int, config: TrainConfig) -> bool:
    """Whether this tick passed a multiple of `every` steps."""
    return session.step // every > (session.step - config.num_envs) // every
