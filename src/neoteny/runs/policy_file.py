"""The file of a policy: its weights and what they are for, written whole, with a digest that reading checks.

Policies from before there was a digest are two files, which are still read.
"""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neoteny.agents.problem import Problem
from neoteny.errors import UsageError
from neoteny.runs.files import decode, digest, encode, inside, write
from neoteny.runs.records import parse, read_bytes
from neoteny.settings.types import fitted

_FILE = "policy.npz"
_BEST = "best.npz"
_OLD = ("problem.json", "params.npz")
_KINDS: dict[str, Any] = {
    "obs_shape": tuple[int, ...],
    "pixels": bool,
    "num_actions": int,
    "action_low": tuple[float, ...] | None,
    "action_high": tuple[float, ...] | None,
    "total_timesteps": int,
    "updates": int,
}
_LARGEST = 1 << 24
"""Numbers in an observation, actions: more than any policy has, and few enough that nothing overflows."""


class SavedPolicy(NamedTuple):
    """What the file says."""

    problem: Problem
    updates: int
    """How many updates had been made, which says what surgery had changed of the networks' shapes."""
    leaves: list[NDArray[Any]]
    config: dict[str, Any]
    """Of the run that made it; empty in a policy from before there was a digest."""


def write_policy(directory: Path, policy: SavedPolicy, best: bool = False) -> None:
    """Write a policy into its run's directory, as its last one or as its best."""
    folder = inside(directory, "policy", folder=True)
    folder.mkdir(exist_ok=True)
    facts = {name: value for name, value in asdict(policy.problem).items() if name in _KINDS}
    facts |= {"updates": policy.updates}
    for name in ("action_low", "action_high"):
        facts[name] = None if facts[name] is None else facts[name].tolist()
    content = {"problem": facts, "leaves": policy.leaves, "config": policy.config}
    write(folder / (_BEST if best else _FILE), encode({"policy": content, "digest": digest(content)}))
    for name in () if best else _OLD:
        (folder / name).unlink(missing_ok=True)


def check_place(directory: Path) -> None:
    """Raise UsageError if something is in a run's directory where its policy will be written, and is not a file."""
    for name in (_FILE, _BEST):
        inside(directory, "policy", name)


def remove_best(directory: Path) -> None:
    """Remove the best policy of a run, if it has one."""
    inside(directory, "policy", _BEST).unlink(missing_ok=True)


def has_policy(run: Path) -> bool:
    """Whether a run has a policy yet."""
    return any((run / "policy" / name).exists() for name in (_FILE, *_OLD))


def caution(run: Path) -> str | None:
    """What a person should know of a policy whose damage cannot be noticed; None of all others."""
    if not has_policy(run) or (run / "policy" / _FILE).exists():
        return None
    return (
        f"{run / 'policy'} was written before policies had a checksum, so a change in it would not be noticed; "
        f"training on with neoteny resume {run} --steps writes it anew"
    )


def read_policy(run: Path, best: bool = False) -> SavedPolicy:
    """The last or the best policy in a run's directory, or a UsageError that says what is wrong with it."""
    folder = run / "policy"
    if best and not (folder / _BEST).exists():
        raise UsageError(f"{run} has no best policy: it is kept from the run's first evaluation on (--eval-every)")
    if not best and not has_policy(run):
        raise UsageError(f"{run} has no policy yet: it is written at the run's first evaluation")
    if not best and not (folder / _FILE).exists():
        return _read_old(folder)
    path = inside(run, "policy", _BEST if best else _FILE)
    data = read_bytes(path)
    try:
        saved = decode(data)
        content = saved["policy"]
        whole = saved["digest"] == digest(content)
        fits = isinstance(content["config"], dict) and isinstance(content["leaves"], list) and "problem" in content
    except Exception as error:  # NumPy and zipfile raise whatever they come upon
        raise UsageError(f"{path} is damaged: it is not a policy") from error
    if not (whole and fits):
        raise UsageError(f"{path} is damaged: its checksum does not match")
    return _checked(path, content["problem"], content["leaves"], content["config"])


def _read_old(folder: Path) -> SavedPolicy:
    facts_path, path = (inside(folder.parent, "policy", name) for name in _OLD)
    try:
        facts = parse(read_bytes(facts_path))
    except ValueError as error:
        raise UsageError(f"{facts_path} is damaged: {error}") from error
    data = read_bytes(path)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as saved:
            leaves = [saved[f"leaf_{index}"] for index in range(len(saved.files))]
    except Exception as error:
        raise UsageError(f"{path} is damaged: it is not a file of arrays") from error
    if isinstance(facts, dict) and facts.pop("injected", False) is not False:
        raise UsageError(f"{folder} was written by an earlier version after a plasticity injection: train the run anew")
    return _checked(facts_path, facts, leaves, {})


def _checked(path: Path, facts: Any, leaves: Any, config: dict[str, Any]) -> SavedPolicy:
    """A policy of these parts; `path`: the file that says what it is for."""
    try:
        parts = {"updates": 0, **facts}
        if parts.keys() != _KINDS.keys():
            raise TypeError(f"has the parts {', '.join(parts)}, and must have {', '.join(_KINDS)}")
        fields = {name: _fit(name, parts[name]) for name in _KINDS}
        low, high = (_bounds(fields.pop(name), fields["num_actions"]) for name in ("action_low", "action_high"))
        if not all(1 <= size <= _LARGEST for size in (*fields["obs_shape"], fields["num_actions"])):
            raise TypeError("has sizes that no policy has")
        if (low is None) != (high is None) or (low is not None and high is not None and (low > high).any()):
            raise TypeError("has lower bounds of actions that are above the upper ones")
    except TypeError as error:
        raise UsageError(f"{path} is damaged: it {error}") from error
    updates = fields.pop("updates")
    if updates < 0:
        raise UsageError(f"{path} is damaged: it says that {updates} updates were made")
    return SavedPolicy(Problem(**fields, action_low=low, action_high=high), updates, leaves, config)


def _fit(name: str, value: Any) -> Any:
    try:
        return fitted(value, _KINDS[name])
    except TypeError as error:
        raise TypeError(f"says {name}, which {error}") from error


def _bounds(values: tuple[float, ...] | None, actions: int) -> NDArray[np.float32] | None:
    if values is None:
        return None
    if len(values) != actions:
        raise TypeError(f"has bounds for {len(values)} actions, and {actions} actions")
    if max(map(abs, values), default=0.0) > np.finfo(np.float32).max:
        raise TypeError(f"has bounds of actions that are not finite, {values}")
    return np.array(values, np.float32)
