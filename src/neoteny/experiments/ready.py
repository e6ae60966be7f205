"""Whether a plan's runs can run here, before the first starts: their environments, and memory for all at once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from neoteny import envs
from neoteny.agents.problem import Problem
from neoteny.errors import UsageError
from neoteny.experiments.checking import in_a_plans_words
from neoteny.experiments.plan import PlannedRun
from neoteny.experiments.work import reason
from neoteny.replay import memory
from neoteny.replay.frames import FrameStore
from neoteny.replay.registry import REPLAYS
from neoteny.replay.storage import Layout, transition_fields
from neoteny.runs.policy import problem_of
from neoteny.settings.config import TrainConfig
from neoteny.training.setup import frames_of

PROCESS = 500_000_000
"""Bytes of a run besides its replay buffer: a small TD3 on Pendulum peaks at 484 MB, by its timing.jsonl."""


def check_environments(runs: Sequence[PlannedRun]) -> list[int]:
    """Make each environment once and see that the agent can act there; the bytes of each run's replay buffer."""
    envs_by_kind: dict[tuple[Any, ...], Any] = {}
    sizes = []
    with contextlib.ExitStack() as stack:
        for run in runs:
            config = run.config
            kind = (config.env, config.sticky, config.action_repeat)
            try:
                if kind not in envs_by_kind:
                    options = envs.EnvOptions(sticky=config.sticky, action_repeat=config.action_repeat)
                    envs_by_kind[kind] = envs.make(config.env, 1, options)
                    stack.callback(envs_by_kind[kind].close)
                problem = problem_of(envs_by_kind[kind], config)
            except UsageError as error:
                raise run.source.wrong(("environments",), in_a_plans_words(str(error))) from error
            except Exception as error:  # whatever a user's own environment does wrong
                raise run.source.wrong(("environments",), f"{config.env} cannot be made: {reason(error)}") from error
            sizes.append(replay_bytes(config, problem))
    return sizes


def replay_bytes(config: TrainConfig, problem: Problem) -> int:
    """The bytes for which a run's ReplayBuffer will ask, known without making one."""
    capacity, shape = config.replay.capacity, problem.obs_shape
    fields = transition_fields(shape, () if problem.action_low is None else (problem.num_actions,))
    frames = 0
    if problem.pixels:
        del fields["obs"], fields["next_obs"]
        frames = FrameStore.num_bytes(frames_of(problem, capacity), capacity, config.num_envs)
    numbers = Layout(fields).width + (config.replay.n_step > 1)  # n-step returns store the discount too
    named = REPLAYS.get(config.replay.replay)
    priorities = 9 if named is not None and named.prioritised else 0
    return capacity * (4 * numbers + priorities) + frames


def check_memory(sizes: Sequence[int], jobs: int) -> None:
    """Refuse to start so many runs at once that their replay buffers and processes would not fit in memory together."""
    free = memory.available_bytes()
    largest = [size + PROCESS for size in sorted(sizes, reverse=True)[:jobs]]
    if free is None or sum(largest) <= free:
        return
    fit = max((count for count in range(len(largest)) if sum(largest[:count]) <= free), default=0)
    advice = f"--jobs {fit} fits, or set a smaller capacity" if fit else "set a smaller capacity, or free memory"
    several = f"{len(largest)} runs at once, with their replay buffers, need"
    what = several if len(largest) > 1 else "a run with its replay buffer needs"
    raise UsageError(f"{what} {sum(largest) / 1e9:.2f} GB and {free / 1e9:.2f} GB are free: {advice}")
