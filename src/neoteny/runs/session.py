"""A session: everything a run needs to go on, and the same as plain data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from neoteny import snapshot
from neoteny.agents.agent import Agent, NetworkState, UpdateReport
from neoteny.agents.learner import Remedy
from neoteny.agents.operating import shapes_after
from neoteny.replay.batch import Batch
from neoteny.replay.buffer import ReplayBuffer
from neoteny.runs.files import UNFIT, Damaged
from neoteny.runs.manifest import MOST

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
_METRIC = re.compile(r"(?!(step|frames|updates|skipped_updates|self)$)[a-z][a-z0-9_/.]*")
"""The name of what an update reports, beside which the log has names of its own."""


class Best(NamedTuple):
    """The policy of the evaluation with the largest mean return so far."""

    value: float
    """That mean return."""
    step: int
    updates: int
    leaves: list[NDArray[Any]]
    """The policy's parameters."""


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
    best: Best | None = None
    """The best policy so far, by its evaluation; None before the first."""
    halted: str | None = None
    """Why the run must stop, once an update was not finite that is one too many. Not saved: a resumed run goes on."""
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
        "best": None if session.best is None else session.best._asdict(),
    }, reason


def restore(
    session: Session, agent: Agent, remedies: Sequence[Remedy], state: Any, step: int, environments: bool = True
) -> bool:
    """Become the session that `state` was taken from at `step`, but for its replay; whether its environments did, too.

    A stranger may have made `state`: whatever is not of the form that `state_of` gives is Damaged. environments:
    whether to restore their states, if they were saved.
    """
    try:
        _check(state, session, agent, step)
        session.state = _filled(shapes_after(agent, remedies, state["counters"]["updates"]), state["agent"])
        session.best = _best(state.get("best"), agent, remedies, state["counters"])
        session.rng.bit_generator.state = state["rng"]
    except UNFIT as error:
        raise Damaged(f"its state is not that of a run: {error}") from error
    session.metrics = state["metrics"]
    session.probe, session.earlier, session.new_fit = state["probe"], state["earlier"], state["new_fit"]
    for name, value in state["counters"].items():
        setattr(session, name, value)
    if state["envs"] is None or not environments:
        return False
    session.obs = np.array(state["obs"])
    for env, saved in zip(session.envs.envs, state["envs"], strict=True):
        try:
            snapshot.restore(env, saved)
        except ValueError as error:
            raise Damaged(str(error)) from error
    return True


def _check(state: Any, session: Session, agent: Agent, step: int) -> None:
    """Raise one of UNFIT if what is not checked where it is used is not what it should be."""
    counters, obs, envs, _ = (state[name] for name in ("counters", "obs", "envs", "replay"))
    if not counters.keys() <= set(COUNTERS) or not all(type(n) is int and 0 <= n <= MOST for n in counters.values()):
        raise ValueError(f"its counters are {counters!r:.200}")
    if counters["step"] != step or counters["ticks"] * session.buffer.num_envs != step:
        raise ValueError(f"its counters are of step {counters['step']:,}, and the manifest is of step {step:,}")
    if not _is_array(obs, session.obs.dtype, session.obs.shape):
        raise ValueError(f"its observations are not {session.obs.dtype}{session.obs.shape}")
    if envs is not None and len(envs) != session.buffer.num_envs:
        raise ValueError(f"it has {len(envs)} environments, and the run has {session.buffer.num_envs}")
    metrics, probe, earlier, new_fit = (state[name] or {} for name in ("metrics", "probe", "earlier", "new_fit"))
    if not all(value.ndim == 0 and _METRIC.fullmatch(name) for name, value in metrics.items()):
        raise ValueError("its metrics are not one number each")
    count = probe["rows"].shape[1] if probe else 0
    shapes: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
        "rows": (np.dtype(np.float32), (1, count, session.buffer.layout.width))
    }
    if session.obs.dtype == np.uint8:
        shapes |= {name: (np.dtype(np.uint8), (1, count, *session.obs.shape[1:])) for name in ("obs", "next_obs")}
    if probe and not (probe.keys() == shapes.keys() and all(_is_array(probe[name], *shapes[name]) for name in shapes)):
        raise ValueError("its probe batch is not of this run's transitions")
    if earlier and not (earlier.keys() == agent.networks.keys() and all(len(v) == count for v in earlier.values())):
        raise ValueError("its earlier values are not of this agent's networks")
    if new_fit and not (new_fit.keys() == agent.networks.keys() and all(type(v) is float for v in new_fit.values())):
        raise ValueError("its losses of new networks are not of this agent's networks")


def _best(saved: Any, agent: Agent, remedies: Sequence[Remedy], counters: dict[str, int]) -> Best | None:
    """The best policy of a saved state, None if it has none; raises one of UNFIT if it is damaged."""
    if saved is None:
        return None
    best = Best(**saved)
    numbers = {"step": best.step, "updates": best.updates}
    if not all(type(number) is int and 0 <= number <= counters[name] for name, number in numbers.items()):
        raise ValueError(f"its best policy is of step {best.step!r:.50} and update {best.updates!r:.50}")
    if type(best.value) is not float or not np.isfinite(best.value):
        raise ValueError("its best policy has no return")
    shapes = jax.tree.leaves(agent.policy_params(shapes_after(agent, remedies, best.updates)))
    fits = len(shapes) == len(best.leaves) and all(map(_fits, best.leaves, shapes))
    if not fits or not all(np.isfinite(leaf).all() for leaf in best.leaves):
        raise ValueError("its best policy is not of this agent's networks")
    return best


def _fits(leaf: Any, shape: Any) -> bool:
    return _is_array(leaf, shape.dtype, shape.shape)


def _is_array(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype, value.shape) == (dtype, shape)


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
        if not _is_array(value, shape.dtype, shape.shape):
            raise Damaged(f"its {name} is not {shape.dtype}{shape.shape}, which this agent's is")
        return jnp.array(value)  # a copy: the state is donated, and must not alias NumPy's memory

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
