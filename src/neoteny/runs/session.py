"""A session: everything a run needs to go on, and the same as plain data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from neoteny import snapshot
from neoteny.agents.agent import Agent, NetworkState, UpdateReport
from neoteny.agents.learner import Remedy, shapes_after
from neoteny.replay.batch import Batch
from neoteny.replay.buffer import ReplayBuffer
from neoteny.runs.files import Damaged

COUNTERS = (
    "step",
    "ticks",
    "updates",
    "skipped",
    "skipped_in_a_row",
    "dropped",
    "dropped_in_a_row",
    "evaluated",
    "logged",
)


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
    skipped: int = 0
    """Updates that were not made, since they were not finite."""
    skipped_in_a_row: int = 0
    dropped: int = 0
    """Vector steps that were not stored, since they were not finite."""
    dropped_in_a_row: int = 0
    evaluated: int = 0
    """The step of the last evaluation."""
    logged: int = 0
    """The step of the last line of metrics."""
    metrics: dict[str, Any] | None = None
    """Of the last updates."""
    probe: dict[str, NDArray[Any]] | None = None
    """A batch drawn evenly when learning began, on which plasticity is measured throughout."""
    earlier: dict[str, NDArray[Any]] | None = None
    """What each network said of it at the last measurement."""
    new_fit: dict[str, float] | None = None
    """The loss that a new network of each kind is left with on it, to compare trainability with."""
    pending: list[tuple[Batch, UpdateReport]] = field(default_factory=list)
    """Updates that may still be running, in their order: whether they were finite, and their errors, is yet to be read.
    Between two ticks at most one."""


def state_of(session: Session, save_envs: bool = True) -> tuple[dict[str, Any], str | None]:
    """Everything but the replay, as arrays and JSON; and why the environments could not be saved, if so."""
    reason = None if save_envs else "it failed"
    envs = None
    if save_envs:
        try:
            envs = [snapshot.save(env) for env in session.envs.envs]
        except snapshot.Unsavable as error:
            reason = str(error)
    metrics = session.metrics
    return {
        "agent": _leaves(session.state),
        "obs": np.array(session.obs),
        "envs": envs,
        "rng": session.rng.bit_generator.state,
        "counters": {name: getattr(session, name) for name in COUNTERS},
        "metrics": None if metrics is None else {name: np.array(value) for name, value in metrics.items()},
        "probe": session.probe,
        "earlier": session.earlier,
        "new_fit": session.new_fit,
    }, reason


def restore(session: Session, agent: Agent, remedies: Sequence[Remedy], state: dict[str, Any]) -> bool:
    """Become the session that `state` was taken from, but for its replay; whether its environments did, too."""
    session.state = _filled(shapes_after(agent, remedies, state["counters"]["updates"]), state["agent"])
    session.rng.bit_generator.state = state["rng"]
    session.metrics = state["metrics"]
    session.probe, session.earlier, session.new_fit = state["probe"], state["earlier"], state["new_fit"]
    for name, value in state["counters"].items():
        setattr(session, name, value)
    if state["envs"] is None:
        return False
    session.obs = state["obs"]
    for env, saved in zip(session.envs.envs, state["envs"], strict=True):
        try:
            snapshot.restore(env, saved)
        except ValueError as error:
            raise Damaged(str(error)) from error
    return True


def _leaves(state: Any) -> dict[str, dict[str, NDArray[Any]]]:
    """An agent's state as named arrays: its optimisers, its keys, and its parameters with everything else."""
    optimisers = {f".{name}.opt" for name in vars(state) if isinstance(getattr(state, name), NetworkState)}
    parts: dict[str, dict[str, NDArray[Any]]] = {"parameters": {}, "optimiser": {}, "random": {}}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        kind = "optimiser" if jax.tree_util.keystr(path[:2]) in optimisers else "parameters"
        parts["random" if leaf.dtype == np.uint32 else kind][jax.tree_util.keystr(path)] = np.array(leaf)
    return parts


def _filled(shapes: Any, saved: dict[str, dict[str, NDArray[Any]]]) -> Any:
    """A state of these shapes with the saved arrays in it."""
    arrays = {_present_name(name): value for part in saved.values() for name, value in part.items()}

    def fill(path: Any, shape: Any) -> Any:
        name = jax.tree_util.keystr(path)
        value = arrays.get(name)
        if value is None:
            raise Damaged(f"it has no {name}, which this agent has")
        filled = jnp.array(value)  # a copy: the state is donated, and must not alias NumPy's memory
        if filled.shape != shape.shape or filled.dtype != shape.dtype:
            raise Damaged(f"its {name} is {filled.dtype}{filled.shape}, and this agent's {shape.dtype}{shape.shape}")
        return filled

    return jax.tree_util.tree_map_with_path(fill, shapes)


_EARLIER_NAMES = {
    r"^\.(actor|critics)_(target|opt)\b": r".\1.\2",
    r"^\.(actor|critics)(?=\[)": r".\1.params",
    r"^\.online(?=\[)": ".critics.params",
    r"^\.target(?=\[)": ".critics.target",
    r"^\.opt(?=\[)": ".critics.opt",
    r"(?<=\.mu|\.nu)\['params'\]": "",
}
"""How the first checkpoints named the arrays of an agent's state, before each network had a state of its own."""


def _present_name(name: str) -> str:
    for earlier, present in _EARLIER_NAMES.items():
        name = re.sub(earlier, present, name)
    return name
