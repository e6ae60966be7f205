"""Beginning a run, and going on with one from its last checkpoint."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from neoteny import envs
from neoteny.errors import UsageError
from neoteny.machine.compiled import start_on
from neoteny.machine.threads import limit_threads, threads_in_force
from neoteny.runs import checkpoint
from neoteny.runs.checkpoint import Checkpoints
from neoteny.runs.files import inside
from neoteny.runs.lock import lock
from neoteny.runs.manifest import Checkpoint, manifests
from neoteny.runs.policy import save_best
from neoteny.runs.records import METRICS, check_log, fact, is_finished, read_config, read_metrics
from neoteny.runs.run import Run, taken, versions
from neoteny.runs.session import Session, restore
from neoteny.settings.automatic import settled
from neoteny.settings.cautions import cautions, shortfalls
from neoteny.settings.config import TrainConfig
from neoteny.settings.identity import changed_settings, check_same_network
from neoteny.training.callbacks import Callback, Callbacks
from neoteny.training.guards import cut
from neoteny.training.loop import go_on
from neoteny.training.observing import observe
from neoteny.training.progress import Progress
from neoteny.training.setup import Setup, seeds, set_up


def train(
    config: TrainConfig,
    *,
    out: str | Path | None = None,
    make_env: envs.MakeEnv | None = None,
    network: Any = None,
    callbacks: Sequence[Callback] = (),
    overwrite: bool = False,
    quiet: bool = False,
) -> Path:
    """Train an agent and return the run's directory.

    Args:
        config: everything that can be set of the run.
        out: the run's directory; if not given, a free one under ``runs/``.
        make_env: a function that makes an environment, instead of config.env, which then only names it.
        network: a Flax module from observations to features, instead of the agent's own trunk.
        callbacks: code of your own to be called after steps, evaluations and checkpoints, which may stop the run.
        overwrite: whether to replace a run that is in the directory already.
        quiet: whether to print no progress.
    """
    told = Callbacks(callbacks)
    config = settled(config)
    limit_threads(config)
    config = dataclasses.replace(config, threads=threads_in_force())  # what is recorded is what is so
    setup, session = set_up(config, make_env, network, config.total_timesteps)
    progress = Progress(config, quiet)
    directory = Path(out) if out is not None else _default_directory(config, setup, overwrite, progress)
    run = Run(directory, config, setup.facts, overwrite, progress.say)
    run.log_timing(0, life=run.lives, first_step=0)
    for caution in cautions(config):
        progress.say(caution)
    return _finish(session, setup, run, progress, Checkpoints(run.directory), told)


def _default_directory(config: TrainConfig, setup: Setup, overwrite: bool, progress: Progress) -> Path:
    """Return the run's directory under runs/, or one with a number behind it if that is taken."""
    own_parts = {name: setup.facts[name] for name in ("make_env", "network") if setup.facts[name] is not None}
    usual = config.default_directory(own_parts)
    if overwrite or not taken(usual):
        return usual
    others = (usual.with_name(f"{usual.name}-{number}") for number in itertools.count(2))
    free = next(path for path in others if not taken(path))
    progress.say(f"{usual} already contains a run of this configuration, so this one is in {free}.")
    return free


def _finish(
    session: Session, setup: Setup, run: Run, progress: Progress, checkpoints: Checkpoints, callbacks: Callbacks
) -> Path:
    """Train to the end, and say so if the agent never learned or was never evaluated."""
    directory = go_on(session, setup, run, progress, checkpoints, callbacks)
    if callbacks.asked and not is_finished(directory):
        return directory
    for caution in shortfalls(setup.config, session.updates, session.evaluated):
        progress.say(caution)
    return directory


def resume(
    run: str | Path,
    *,
    steps: int | None = None,
    make_env: envs.MakeEnv | None = None,
    network: Any = None,
    callbacks: Sequence[Callback] = (),
    allow_version_change: bool = False,
    new_episodes: bool = False,
    on_nan: Literal["halt", "skip"] | None = None,
    stop_at_return: float | None = None,
    quiet: bool = False,
) -> Path:
    """Go on with a run from its last checkpoint, to the same bits as if it had never stopped; its directory.

    steps: a new number of steps in all, larger than before. make_env, network, callbacks: as given to ``train``.
    allow_version_change: go on with other versions of the libraries than it began with. new_episodes: begin new
    episodes, and do not read the saved states of the environments. on_nan, stop_at_return: instead of its own.
    """
    directory, told = Path(run), Callbacks(callbacks)
    read_config(directory)  # whether it is a run at all
    with lock(directory) as held:
        config, facts = read_config(directory)
        recorded = facts["config"]
        _check_can_go_on(directory, config, facts, steps, stop_at_return, make_env, network)
        config = dataclasses.replace(
            config,
            total_timesteps=config.total_timesteps if steps is None else steps,
            on_nan=on_nan or config.on_nan,
            stop_at_return=config.stop_at_return if stop_at_return is None else stop_at_return,
        )
        limit_threads(config)
        start_on(config.device)
        changed = _changed_versions(directory, facts)
        if changed and not allow_version_change:
            raise UsageError(
                f"{directory} began with other versions ({', '.join(changed)}), and may not go on to the same result: "
                "install those, or pass --allow-version-change"
            )
        setup, session = set_up(config, make_env, network, fact(directory, facts, "horizon"))
        progress = Progress(config, quiet)
        restored: list[bool] = []

        def use(manifest: Checkpoint, state: dict[str, Any]) -> None:
            _check_same_config(directory, manifest, recorded)
            check_log(directory, manifest.log_position, state.get("log"))
            restored[:] = [restore(session, setup.agent, setup.remedies, state, manifest.step, not new_episodes)]
            checkpoint.put_back(directory, manifest, state["replay"], session.buffer)

        manifest = None
        log = inside(directory, METRICS)
        if manifests(directory) or (log.exists() and log.stat().st_size):
            manifest, complaints = checkpoint.load(directory, use)
            for complaint in complaints:
                progress.say(f"{complaint}; going on from the one before")
        # Without a manifest it was killed before its first checkpoint.
        step, position = (manifest.step, manifest.log_position) if manifest else (0, 0)
        restarted = manifest is not None and not restored[0]
        if restarted:  # before anything on disk is changed: the environment may fail
            session.obs = session.envs.reset(seed=seeds(config, session.step))[0]
            observe(session, setup, np.zeros(config.num_envs), np.ones(config.num_envs, bool))
        reopened = Run.reopen(directory, config, step, position, held, progress.say)
        save_best(directory, config, setup.problem, session.best)  # not one of a future that is made anew
        checkpoints = Checkpoints(directory, manifest)
        reopened.log_timing(step, life=reopened.lives, first_step=step, changed_versions=changed)
        progress.say(f"Going on with {directory} at step {step:,} of {config.total_timesteps:,}.")
        if restarted:
            cut(session, checkpoints)
            reopened.log(session.step, episodes_restarted=config.num_envs)
            why = "You asked for new episodes" if new_episodes else "The environment could not be saved"
            progress.say(f"{why}, so the episode begins again.")
        return _finish(session, setup, reopened, progress, checkpoints, told)


def _check_can_go_on(
    directory: Path,
    config: TrainConfig,
    facts: dict[str, Any],
    steps: int | None,
    stop_at_return: float | None,
    make_env: envs.MakeEnv | None,
    network: Any,
) -> None:
    if steps is not None and steps < config.total_timesteps:
        raise UsageError(f"--steps must be at least the run's {config.total_timesteps:,}, got {steps:,}")
    finished = is_finished(directory)
    reached = _reached_at(directory, config) if finished else None
    if reached is not None:
        assert config.stop_at_return is not None
        if stop_at_return is None or stop_at_return <= config.stop_at_return:
            raise UsageError(
                f"{directory} is done at step {reached:,}, since it reached --stop-at-return "
                f"{config.stop_at_return:g}: a higher --stop-at-return goes on"
            )
    elif finished and steps in (None, config.total_timesteps):
        raise UsageError(f"{directory} is done, with {config.total_timesteps:,} steps: --steps with more goes on")
    if fact(directory, facts, "make_env") and make_env is None:
        raise UsageError(f"{directory} was trained with make_env: go on by neoteny.resume(run, make_env=...) in Python")
    check_same_network(directory, fact(directory, facts, "network"), network)


def _reached_at(directory: Path, config: TrainConfig) -> int | None:
    """The step at which a finished run reached its target return before its end; None if it did not."""
    if config.stop_at_return is None:  # its log is not needed, and may be damaged after the checkpoint
        return None
    ended: int = read_metrics(directory)[-1]["step"]
    return ended if ended < config.total_timesteps else None


def _changed_versions(directory: Path, facts: dict[str, Any]) -> list[str]:
    """Each library that is not what the run began with: name, then and now."""
    env_versions, backend = (fact(directory, facts, name) for name in ("versions", "backend"))
    began = {**facts.get("versions", {}), **env_versions, "backend": backend}
    now = {**versions(), **envs.versions(), "backend": jax.default_backend()}
    return [f"{name} {then}, now {now.get(name, 'none')}" for name, then in began.items() if now.get(name) != then]


def _check_same_config(directory: Path, manifest: Checkpoint, recorded: dict[str, Any]) -> None:
    """Refuse a config.json that was edited since the checkpoint."""
    for name, was, now in changed_settings(manifest.config, recorded):
        raise UsageError(
            f"{directory}/config.json was changed since the checkpoint: {name} is {now} and was {was}; change it back, "
            "or train anew"
        )
