"""Suites: which one a task belongs to, and what counts as 0 and as 1 on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from neoteny.report.scores import Scores

MUJOCO, ATARI, DMC, OTHER = "MuJoCo", "Atari", "DeepMind Control", "other tasks"
SUITES = (MUJOCO, ATARI, DMC, OTHER)
_MUJOCO = re.compile(
    r"(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|InvertedDoublePendulum|InvertedPendulum|Pusher|Reacher|Swimmer"
    r"|Walker2d)-v\d+"
)
TD3 = {
    "Ant-v5": (-70.3, 3942.0),
    "HalfCheetah-v5": (-289.4, 10574.0),
    "Hopper-v5": (18.8, 3226.0),
    "Humanoid-v5": (120.4, 5165.0),
    "Walker2d-v5": (2.8, 3946.0),
}
"""Published returns of a random policy and of TD3."""
HUMAN = {
    "ALE/Breakout-v5": (1.7, 30.5),
    "ALE/DemonAttack-v5": (152.1, 1971.0),
    "ALE/Phoenix-v5": (761.4, 7242.6),
}
"""Scores of a random player and of a person, as DQN Zoo lists them."""


class Bounds(NamedTuple):
    """What counts as 0 and as 1 on a task."""

    zero: float
    one: float
    reason: str
    fixed: bool = True
    """Whether it is the same in every report; otherwise it depends on the runs in this one."""


def suite_of(task: str) -> str:
    """The suite of a task, by its name."""
    if _MUJOCO.fullmatch(task):
        return MUJOCO
    return {"ALE": ATARI, "dm_control": DMC}.get(task.partition("/")[0], OTHER)


def by_suite(tasks: Sequence[str]) -> dict[str, list[str]]:
    """The tasks of each suite. Scores of different suites are never pooled."""
    found = {suite: [task for task in tasks if suite_of(task) == suite] for suite in SUITES}
    return {suite: mine for suite, mine in found.items() if mine}


def bounds_of(scores: Scores) -> dict[str, Bounds]:
    """The scale of each task: its own where one is known, else from the lowest to the highest score of any run here."""
    pooled: dict[str, list[np.ndarray]] = {}
    for by_task in scores.values():
        for task, values in by_task.items():
            pooled.setdefault(task, []).append(values)
    return {task: _bounds(task, np.concatenate(many)) for task, many in pooled.items()}


def _bounds(task: str, scores: np.ndarray) -> Bounds:
    if task in TD3:
        return Bounds(*TD3[task], "a random policy, TD3's published return")
    if task in HUMAN:
        return Bounds(*HUMAN[task], "a random player, a person")
    if suite_of(task) == DMC:
        return Bounds(0.0, 1000.0, "the range of its returns")
    low, high = float(scores.min()), float(scores.max())
    if high == low:
        high = low + max(1.0, abs(low))  # 1 more than a very large number is the same number
    return Bounds(low, high, "not fixed: the lowest and highest score of any run here", False)
