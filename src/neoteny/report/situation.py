"""What is known of a replay that advice is asked for: of a run of ours, or of a buffer that Stable-Baselines3 saved."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neoteny.agents.configs import AgentConfig
from neoteny.errors import UsageError, missing_extra
from neoteny.plasticity.drift import Curve, late_curve
from neoteny.replay.ages.ageing import Schedule
from neoteny.replay.ages.schedules import Uniform
from neoteny.replay.moving import MovingDecaySampler
from neoteny.replay.registry import make_sampler
from neoteny.report.archive import History, read_archive, read_history
from neoteny.settings.config import TrainConfig


@dataclass(frozen=True, eq=False)
class Situation:
    """A replay, and what is known of the training around it."""

    name: str
    about: str
    """What it is, in a few words."""
    schedule: Schedule
    """By which ages are drawn at present."""
    num_stored: int
    capacity: int
    num_envs: int
    agent: AgentConfig | None = None
    """None if it is not known."""
    steps: int | None = None
    """Of the whole run; None if they are not known."""
    drift: Curve | None = None
    unknown: tuple[str, ...] = ()
    """What is not known of it, a sentence each."""

    @property
    def volume(self) -> float | None:
        """V, the draws for each step: updates for each step times the batch."""
        return None if self.agent is None else self.agent.utd * self.agent.batch_size


def situation_of(path: Path, trust: bool) -> Situation:
    """The replay at `path`: a run's directory or archive, or with `trust` a pickle of a replay buffer."""
    if path.suffix == ".jsonl" and path.is_file():
        return _of_run(path, read_archive(path))
    if path.is_dir() or not path.exists():
        return _of_run(path, read_history(path))
    if not path.is_file():
        raise UsageError(f"{path} is neither a run nor a saved replay buffer")
    if not trust:
        raise UsageError(
            f"{path} is read as a pickle, which can run any code while it is read: pass --trust if you know who made it"
        )
    return _of_buffer(path, _unpickled(path))


def _of_run(path: Path, history: History) -> Situation:
    config = history.config
    every = [history.evaluations, history.episodes, *history.series.values()]
    reached = max((int(steps[-1]) for steps, _ in every if len(steps)), default=0)
    num_stored = min(config.replay.capacity, reached)
    if num_stored < 2:
        raise UsageError(f"{path} has logged no steps yet, so there is no replay to look at")
    schedule, unknown = _schedule_of_run(path, config, history)
    drift = late_curve({name: values for name, (_, values) in history.series.items()})
    if drift is None:
        unknown += ("How far old data is from what the agent would do now: this run did not measure drift.",)
    about = f"{config.agent_name} on {config.env}, {config.replay.replay} replay"
    return Situation(
        str(path),
        about,
        schedule,
        num_stored,
        config.replay.capacity,
        config.num_envs,
        config.agent,
        config.total_timesteps,
        drift,
        unknown,
    )


def _schedule_of_run(path: Path, config: TrainConfig, history: History) -> tuple[Schedule, tuple[str, ...]]:
    """A run's schedule at its end, and what that leaves out."""
    replay = config.replay
    if ":" in replay.replay:
        raise UsageError(
            f"{path} was trained with a schedule of its own code, {replay.replay}, which is not run here: "
            "neoteny.describe(schedule, capacity=...) in Python describes it"
        )
    sampler: Any = make_sampler(replay.replay, replay.replay_sampler, config.default_decay_steps(), replay.numbers())
    if isinstance(sampler, MovingDecaySampler):
        moves = history.series.get("decay_steps")
        return sampler.schedule_at(None if moves is None else max(2.0, float(moves[1][-1]))), ()
    if replay.replay == "combined":
        return sampler.schedule, ("The newest transition in each batch is not counted: what is said is of the others.",)
    if "per" in replay.replay.split("-"):
        said = "What priorities do: what is said is of the ages alone, as if all priorities were equal."
        return sampler.schedule or Uniform(), (said,)
    return sampler.schedule, ()


def _unpickled(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return pickle.load(file)
    except ImportError as error:
        raise missing_extra(f"{path}", "sb3", error) from error
    except Exception as error:  # whatever a pickle raises, it is not a buffer that can be read
        raise UsageError(f"{path} cannot be read as a saved replay buffer: {type(error).__name__}: {error}") from error


def _of_buffer(path: Path, buffer: Any) -> Situation:
    kind = type(buffer).__name__
    numbers = [getattr(buffer, name, None) for name in ("buffer_size", "pos", "n_envs")]
    if not all(isinstance(number, int) and number >= 0 for number in numbers) or not hasattr(buffer, "full"):
        raise UsageError(f"{path} contains a {kind}, and not a replay buffer of Stable-Baselines3")
    rows, pos, num_envs = (int(number) for number in numbers if number is not None)
    num_stored = (rows if buffer.full else pos) * num_envs
    if num_stored < 2:
        raise UsageError(f"{path} is a {kind} that contains {num_stored} transitions, and at least 2 are needed")
    sampler = getattr(buffer, "sampler", None)
    unknown = [
        "The agent, its batch and its updates for each step, which a buffer does not contain: draws are told in units "
        "of V, the updates for each step times the batch.",
        "The length of the run, so the paper's share of it is not known either.",
        "How far old data is from what the agent would do now: a buffer contains no policy.",
    ]
    if "Her" in kind:
        unknown.append("What hindsight replay does: it draws from finished episodes, and is described as uniform.")
    if getattr(buffer, "num_pinned", 0):
        unknown.append("What is pinned counts as any other transition here.")
    schedule = getattr(sampler, "schedule", None) or Uniform()
    about = f"a {kind} of Stable-Baselines3, {'age-weighted' if sampler else 'uniform'} replay"
    return Situation(str(path), about, schedule, num_stored, rows * num_envs, num_envs, unknown=tuple(unknown))
