"""The loop, the only one: start to act, start the update, read the actions, step the environments, add."""

from __future__ import annotations

import dataclasses
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from neoteny import envs
from neoteny.errors import Interrupted, RunStopped
from neoteny.machine.allocation import memory_kept
from neoteny.machine.signals import asked_to_stop
from neoteny.runs.checkpoint import Checkpoints
from neoteny.runs.inspect import describe_dropped
from neoteny.runs.policy import save_policy
from neoteny.runs.run import Run
from neoteny.runs.session import Session, state_of
from neoteny.settings.config import TrainConfig
from neoteny.training.callbacks import Callbacks
from neoteny.training.dispatching import dispatch_updates
from neoteny.training.evaluating import evaluate_now, good_enough
from neoteny.training.guards import NotFinite, drop, finite, stop_if_halted
from neoteny.training.observing import observe
from neoteny.training.playing import finished
from neoteny.training.priming import is_collecting, is_due, next_count
from neoteny.training.progress import Progress
from neoteny.training.settling import settle
from neoteny.training.setup import Setup


def go_on(
    session: Session, setup: Setup, run: Run, progress: Progress, checkpoints: Checkpoints, callbacks: Callbacks
) -> Path:
    """From wherever the session is to the end, or to where a callback stops it.

    There is a checkpoint now and then, and one before any error is raised.
    """
    config = setup.config
    between_ticks = True

    def save(envs: bool = True) -> bool:
        forever = _kept_forever(session, setup)
        return _save(session, setup, run, progress, checkpoints, envs, forever)

    def tell(name: str, returns: list[float] | None = None) -> None:
        callbacks.tell(name, run.directory, session, setup, returns)

    try:
        # One thread for NumPy's own products: their bits must not depend on the cores this process may use.
        with asked_to_stop() as stop, threadpool_limits(1, "blas"), memory_kept():
            if config.checkpoint_every and checkpoints.newest is None and save():
                tell("after_checkpoint")
            saved = time.monotonic()
            while True:
                stop_if_halted(session)
                if _evaluation_due(session, config):
                    returns = evaluate_now(session, setup, run, progress, stop)
                    if returns is not None:
                        tell("after_evaluation", returns)
                if stop.signal is not None:
                    save()
                    stop_if_halted(session)
                    message = f"Stopped at step {session.step:,}; {checkpoints.how_to_go_on()}"
                    raise Interrupted(message, stop.signal)
                priming = is_due(session, config)
                early = good_enough(session, config)
                if early or (session.step >= config.total_timesteps and not priming):
                    break
                if callbacks.asked:
                    save()
                    stop_if_halted(session)
                    run.log_timing(session.step, stopped=callbacks.asked)
                    progress.say(
                        f"Stopped at step {session.step:,}, since {callbacks.asked}; {checkpoints.how_to_go_on()}"
                    )
                    return run.directory
                if priming:
                    prime(session, setup, run, progress)
                else:
                    between_ticks = False
                    tick(session, setup, run, progress, checkpoints)
                    between_ticks = True
                    tell("after_step")
                if config.checkpoint_every:
                    checkpoints.spill(session.buffer)
                    keep = not priming and _kept_forever(session, setup)
                    if time.monotonic() - saved >= config.checkpoint_every or keep:
                        if save():
                            tell("after_checkpoint")
                        saved = time.monotonic()
            settle(session, setup, run)
            stop_if_halted(session)
            if config.checkpoint_every and not save():
                raise RunStopped(f"the end of the run could not be saved; {checkpoints.how_to_go_on()}")
            if config.checkpoint_every:
                tell("after_checkpoint")
            if early:
                run.log_timing(session.step, stopped=early)
                progress.say(f"Done at step {session.step:,}, since {early}.")
            try:
                _conclude(session, setup, run, progress)
            except OSError as error:
                if not config.checkpoint_every:
                    save()
                where = error.filename or run.directory
                raise RunStopped(f"{error.strerror}: {where}; {checkpoints.how_to_go_on()}") from error
    except (Interrupted, RunStopped):
        raise  # saved by now, or it cannot be
    except BaseException as error:
        with suppress(Exception):  # the state may be lost with the error; the checkpoint before is whole
            save(envs=between_ticks)
        if isinstance(error, NotFinite):
            raise RunStopped(f"{error}; {checkpoints.how_to_go_on()}") from None
        error.add_note(f"neoteny: this was raised at step {session.step:,}; {checkpoints.how_to_go_on()}")
        raise
    finally:
        run.close()
        session.envs.close()
        if setup.evaluation_envs is not None:
            setup.evaluation_envs.close()
    return run.directory


def _conclude(session: Session, setup: Setup, run: Run, progress: Progress) -> None:
    """Write what is left to write at the end of a run, and mark it as done."""
    if session.logged != session.step:  # after the checkpoint: a longer run would not have this line
        _log(session, setup, run, progress)
        progress.tick(session.step, log=True)
    run.log_timing(session.step, compilations=setup.compilations())
    save_policy(run.directory, setup.config, setup.agent, session.state, setup.problem, session.updates)
    run.finish()
    progress.done()
    if session.dropped:
        progress.say(describe_dropped(session.dropped * setup.config.num_envs))


def _save(
    session: Session,
    setup: Setup,
    run: Run,
    progress: Progress,
    checkpoints: Checkpoints,
    envs: bool,
    forever: bool,
) -> bool:
    """Make a checkpoint, or if the disk does not take it say so and leave the one before; whether it was made."""
    start = time.perf_counter()
    settle(session, setup, run)
    state, reason = state_of(session, envs)
    state["log"] = run.log_digest
    try:
        checkpoints.save(state, session.buffer, session.step, run.log_position, setup.config.to_json(), forever)
    except OSError as error:
        progress.say(
            f"No checkpoint could be made at step {session.step:,} ({error.strerror}); the one before is whole."
        )
        return False
    if reason is not None and envs and run.once("unsavable"):
        progress.say(f"The environment cannot be saved, so a resumed run begins a new episode: {reason}")
    run.log_timing(session.step, checkpoint_seconds=round(time.perf_counter() - start, 4), unsaved_environment=reason)
    return True


def tick(session: Session, setup: Setup, run: Run, progress: Progress, checkpoints: Checkpoints) -> None:
    """One step of every environment, and the updates that are due."""
    config, problem = setup.config, setup.problem
    obs = session.obs if problem.pixels else session.obs.astype(np.float32)
    learning = session.step >= config.agent.learning_starts
    params = setup.agent.policy_params(session.state)
    actions, acting = setup.act(params, session.state.acting, obs, np.float32(session.step))
    if session.pending and session.pending[0][0].weights is not None:
        settle(session, setup, run)  # the next draw depends on the errors of the updates before: it waits for them
    session.state = dataclasses.replace(session.state, acting=acting)
    count, ticks_between = config.updates()
    due = learning and session.ticks % ticks_between == 0 and len(session.buffer) > 0
    if due:
        dispatch_updates(session, setup, run, progress, count)
    # The actions are read only now: their computation, and the wait for the updates before, pass while updates start.
    action = np.asarray(actions)
    low, high = problem.action_low, problem.action_high
    if not learning and low is not None and high is not None:
        action = session.rng.uniform(low, high, (config.num_envs, len(low))).astype(np.float32)
    elif is_collecting(session, config):  # agents of discrete actions, which explore in another way
        action = session.rng.integers(problem.num_actions, size=config.num_envs, dtype=np.int32)
    after, reward, terminated, truncated, info = session.envs.step(action)
    next_obs = true_next(after, terminated | truncated, info)
    session.ticks += 1
    session.step += config.num_envs
    bad = ~(finite(next_obs) & finite(reward) & finite(after))
    observe(session, setup, np.where(bad, 0.0, reward), terminated | truncated | bad)
    if bad.any():
        session.obs = drop(session, setup, run, progress, checkpoints, after, bad, terminated | truncated)
    else:
        session.buffer.add(
            obs=session.obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated
        )
        session.dropped_in_a_row = 0
        session.obs = after
    for _, episode in finished(info):
        run.log(session.step, episode_return=episode["r"], episode_length=episode["l"])
        progress.episode(episode["r"])
    # Before the log, which then counts the same updates whether or not a checkpoint has settled them already.
    settle(session, setup, run, under_way=int(due))
    logging = _crossed(session, config.log_every, config)
    if logging:
        _log(session, setup, run, progress)
    progress.tick(session.step, logging)


def prime(session: Session, setup: Setup, run: Run, progress: Progress) -> None:
    """The next updates of priming, on what was collected at random; no step is made meanwhile."""
    config, before = setup.config, session.updates
    if session.pending and session.pending[0][0].weights is not None:
        settle(session, setup, run)
    dispatch_updates(session, setup, run, progress, next_count(before, setup))
    settle(session, setup, run, under_way=1)
    ended = session.updates == config.priming_updates
    logging = ended or session.updates // config.log_every > before // config.log_every
    if logging:
        _log(session, setup, run, progress)
    progress.primed(session.updates, logging)


def true_next(after: NDArray[Any], ended: NDArray[np.bool_], info: dict[str, Any]) -> NDArray[Any]:
    """What followed each action: the final observation where an episode ended, and not the reset's."""
    if not ended.any():
        return after
    true = after.copy()
    for index in np.flatnonzero(ended):
        true[index] = info["final_obs"][index]
    return true


def _log(session: Session, setup: Setup, run: Run, progress: Progress) -> None:
    config = setup.config
    values = session.buffer.statistics() if len(session.buffer) else {}
    if session.metrics is not None:
        values |= {name: float(value) for name, value in session.metrics.items()}
    learned = session.step - config.agent.learning_starts
    values["realised_utd"] = (session.updates - config.priming_updates) / learned if learned > 0 else 0.0
    frames = session.step * envs.frames_per_step(config.env, config.action_repeat)
    run.log(session.step, frames=frames, updates=session.updates, skipped_updates=session.skipped, **values)
    session.logged = session.step
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    run.log_timing(
        session.step,
        steps_per_second=round((session.step - run.first_step) / run.seconds, 2),
        peak_resident_mb=resident,
    )
    progress.metrics(values)


def _evaluation_due(session: Session, config: TrainConfig) -> bool:
    every = config.eval_every
    return bool(every) and session.evaluated != session.step and _crossed(session, every or 1, config)


def _kept_forever(session: Session, setup: Setup) -> bool:
    """Return whether this step is one whose checkpoint --keep-checkpoints keeps: equal shares of the planned length."""
    count, length = setup.config.keep_checkpoints, setup.problem.total_timesteps
    before = session.step - setup.config.num_envs
    return session.step > 0 and session.step * count // length > before * count // length


def _crossed(session: Session, every: int, config: TrainConfig) -> bool:
    """Whether this tick passed a multiple of `every` steps."""
    return session.step // every > (session.step - config.num_envs) // every
