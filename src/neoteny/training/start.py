"""Beginning a run, and going on with one from its last checkpoint."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any, Literal

import jax

from neoteny import envs
from neoteny.errors import UsageError
from neoteny.machine.compiled import start_on
from neoteny.machine.threads import limit_threads, threads_in_force
from neoteny.runs import checkpoint
from neoteny.runs.checkpoint import Checkpoint, Checkpoints
from neoteny.runs.run import Run, lock, read_config, read_metrics, taken, versions
from neoteny.runs.session import Session, restore
from neoteny.settings.cautions import cautions, shortfalls
from neoteny.settings.config import TrainConfig
from neoteny.settings.identity import check_same_network
from neoteny.training.guards import cut
from neoteny.training.loop import go_on
from neoteny.training.progress import Progress
from neoteny.training.setup import Setup, seeds, set_up


def train(
    config: TrainConfig,
    *,
    out: str | Path | None = None,
    make_env: envs.MakeEnv | None = None,
    network: Any = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Path:
    """Train an agent and return the run's directory.

    Args:
        config: everything that can be set of the run.
        out: the run's directory; if not given, a free one under ``runs/``.
        make_env: a function that makes an environment, instead of config.env, which then only names it.
        network: a Flax module from observations to features, instead of the agent's own trunk.
        overwrite: whether to replace a run that is in the directory already.
        quiet: whether to print no progress.
    """
    limit_threads(config)
    config = dataclasses.replace(config, threads=threads_in_force())  # what is recorded is what is so
    setup, session = set_up(config, make_env, network, config.total_timesteps)
    progress = Progress(config, quiet)
    directory = Path(out) if out is not None else _default_directory(config, setup, overwrite, progress)
    run = Run(directory, config, setup.facts, overwrite)
    run.log_timing(0, life=run.lives, first_step=0)
    for caution in cautions(config):
        progress.say(caution)
    return _finish(session, setup, run, progress, Checkpoints(run.directory))


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


def _finish(session: Session, setup: Setup, run: Run, progress: Progress, checkpoints: Checkpoints) -> Path:
    """Train to the end, and say so if the agent never learned or was never evaluated."""
    directory = go_on(session, setup, run, progress, checkpoints)
    for caution in shortfalls(setup.config, session.updates, session.evaluated):
        progress.say(caution)
    return directory


def resume(
    run: str | Path,
    *,
    steps: int | None = None,
    make_env: envs.MakeEnv | None = None,
    network: Any = None,
    allow_version_change: bool = False,
    on_nan: Literal["halt", "skip"] | None = None,
    quiet: bool = False,
) -> Path:
    """Go on with a run from its last checkpoint, to the same bits as if it had never stopped; its directory.

    steps: a new number of steps in all, larger than before. make_env, network: as given to ``train``.
    allow_version_change: go on with other versions of the libraries than it began with. on_nan: instead of its own.
    """
    directory = Path(run)
    read_config(directory)  # whether it is a run at all
    with lock(directory) as held:
        config, facts = read_config(directory)
        began, recorded = facts["environment"], facts["config"]
        _check_can_go_on(directory, config, began, steps, make_env, network)
        config = dataclasses.replace(
            config,
            total_timesteps=config.total_timesteps if steps is None else steps,
            on_nan=on_nan or config.on_nan,
        )
        limit_threads(config)
        start_on(config.device)
        changed = _changed_versions(facts)
        if changed and not allow_version_change:
            raise UsageError(
                f"{directory} began with other versions ({', '.join(changed)}), and may not go on to the same result: "
                "install those, or pass --allow-version-change"
            )
        setup, session = set_up(config, make_env, network, began["horizon"])
        progress = Progress(config, quiet)
        restored: list[bool] = []

        def use(found: Checkpoint, state: dict[str, Any]) -> None:
            _check_same_config(directory, found, recorded)
            restored[:] = [restore(session, setup.agent, setup.remedies, state)]
            try:
                session.buffer.restore(state["replay"])
            except ValueError as error:
                raise UsageError(f"{directory} cannot go on: {error}") from error
            for first, arrays in checkpoint.segments(directory, found):
                session.buffer.put(first, arrays)

        found = None
        if checkpoint.manifests(directory) or read_metrics(directory):
            found, complaints = checkpoint.load(directory, use)
            for complaint in complaints:
                progress.say(f"{complaint}; going on from the one before")
        step, position = (found.step, found.log_position) if found else (0, 0)  # killed before its first checkpoint
        restarted = found is not None and not restored[0]
        if restarted:  # before anything on disk is changed: the environment may fail
            session.obs = session.envs.reset(seed=seeds(config, session.step))[0]
        reopened = Run.reopen(directory, config, step, position, held)
        checkpoints = Checkpoints(directory, found)
        reopened.log_timing(step, life=reopened.lives, first_step=step, changed_versions=changed)
        progress.say(f"Going on with {directory} at step {step:,} of {config.total_timesteps:,}.")
        if restarted:
            cut(session, checkpoints)
            reopened.log(session.step, episodes_restarted=config.num_envs)
            progress.say("The environment could not be saved, so its episode begins again.")
        return _finish(session, setup, reopened, progress, checkpoints)


def _check_can_go_on(
    directory: Path,
    config: TrainConfig,
    began: dict[str, Any],
    steps: int | None,
    make_env: envs.MakeEnv | None,
    network: Any,
) -> None:
    if steps is not None and steps < config.total_timesteps:
        raise UsageError(f"--steps must be at least the run's {config.total_timesteps:,}, got {steps:,}")
    if (directory / "DONE").exists() and steps in (None, config.total_timesteps):
        raise UsageError(f"{directory} is done, with {config.total_timesteps:,} steps: --steps with more goes on")
    if began["make_env"] and make_env is None:
        raise UsageError(f"{directory} was trained with make_env: go on by neoteny.resume(run, make_env=...) in Python")
    check_same_network(directory, began["network"], network)


def _changed_versions(facts: dict[str, Any]) -> list[str]:
    """Each library that is not what the run began with: name, then and now."""
    began = {**facts["versions"], **facts["environment"]["versions"], "backend": facts["environment"]["backend"]}
    now = {**versions(), **envs.versions(), "backend": jax.default_backend()}
    return [f"{name} {then}, now {now.get(name, 'none')}" for name, then in began.items() if now.get(name) != then]


def _check_same_config(directory: Path, found: Checkpoint, recorded: dict[str, Any]) -> None:
    """Refuse a config.json that was edited since the checkpoint."""
    free = ("total_timesteps", "checkpoint_every", "keep_checkpoints", "on_nan", "wandb")
    was, now = _flat(found.config), _flat(recorded)
    for name in was:
        if name not in free and now.get(name) != was[name]:
            raise UsageError(
                f"{directory}/config.json was changed since the checkpoint: {name} is {now.get(name)} and was "
                f"{was[name]}; change it back, or train anew"
            )


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    parts = {name: value for name, value in config.items() if isinstance(value, dict)}
    inner = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}
    return {**{name: value for name, value in config.items() if name not in parts}, **inner}
