"""Storage: transitions as packed float32 rows in a ring, so that a batch is one gather.

A row holds a transition's fields side by side, 4 bytes a number: float32 as it is, bool as 0.0 or 1.0, and
int32 bit for bit (the columns are only viewed as float32).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from neoteny.replay.ages.ageing import Ints

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Field:
    """One named part of a transition: its shape and dtype (float32, int32 or bool)."""

    shape: tuple[int, ...] = ()
    dtype: DTypeLike = np.float32

    def __post_init__(self) -> None:
        if np.dtype(self.dtype) not in (np.float32, np.int32, np.bool_):
            raise TypeError(f"a field is float32, int32 or bool, got {np.dtype(self.dtype)}")
        if any(side < 1 for side in self.shape):
            raise ValueError(f"a field's sides must be >= 1, got shape {self.shape}")

    @property
    def size(self) -> int:
        """How many numbers it is."""
        return math.prod(self.shape)


def transition_fields(
    obs_shape: tuple[int, ...], action_shape: tuple[int, ...], action_dtype: DTypeLike = np.float32
) -> dict[str, Field]:
    """The fields of an ordinary transition: obs, action, reward, next_obs, terminated, truncated."""
    return {
        "obs": Field(obs_shape),
        "action": Field(action_shape, action_dtype),
        "reward": Field(),
        "next_obs": Field(obs_shape),
        "terminated": Field((), np.bool_),
        "truncated": Field((), np.bool_),
    }


def in_words(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> str:
    """A field in a line of text: its name, its shape if it is not one number, its dtype if it is not float32."""
    kind = np.dtype(dtype)
    return f"{name}{f' {shape}' if shape else ''}{f' {kind}' if kind != np.float32 else ''}"


def require_scalars(fields: Mapping[str, Field | tuple[int, ...]], names: tuple[str, ...], what: str) -> None:
    """Refuse `fields` that lack one of `names`, or have it with a shape of more than one number."""
    if missing := [name for name in names if name not in fields]:
        raise ValueError(f"{what} needs the fields {', '.join(names)}; missing: {', '.join(missing)}")
    for name in names:
        field = fields[name]
        shape = field.shape if isinstance(field, Field) else tuple(field)
        if shape != ():
            raise ValueError(f"{what} needs {name!r} to be one number, shape (), got {shape}")


class Layout:
    """Where each field lies in a row: the float columns first, then those of integers."""

    def __init__(self, fields: Mapping[str, Field | tuple[int, ...]]) -> None:
        if not fields:
            raise ValueError("a buffer needs at least one field, such as transition_fields(obs_shape, action_shape)")
        given = {name: field if isinstance(field, Field) else Field(tuple(field)) for name, field in fields.items()}
        self.fields = dict(sorted(given.items(), key=lambda item: np.dtype(item[1].dtype) == np.int32))
        self.columns: dict[str, slice] = {}
        self.width = 0
        for name, field in self.fields.items():
            self.columns[name] = slice(self.width, self.width + field.size)
            self.width += field.size
        self.num_floats = sum(f.size for f in self.fields.values() if np.dtype(f.dtype) != np.int32)

    def pack(self, values: Mapping[str, ArrayLike], out: Rows) -> None:
        """Write `values`, each of shape (len(out), *field.shape), into the rows `out`, or raise."""
        if values.keys() != self.fields.keys():
            missing, unknown = self.fields.keys() - values.keys(), values.keys() - self.fields.keys()
            raise ValueError(
                f"a transition has the fields {', '.join(sorted(self.fields))};"
                + (f" missing: {', '.join(sorted(missing))};" if missing else "")
                + (f" unknown: {', '.join(sorted(unknown))};" if unknown else "")
            )
        for name, field in self.fields.items():
            value = np.asarray(values[name])
            columns = out[:, self.columns[name]]
            shape = (len(out), *field.shape)
            if value.shape != shape and not (len(out) == 1 and value.shape == field.shape):
                raise ValueError(f"{name!r} must have shape {shape}, environments first, got {value.shape}")
            if not np.can_cast(value.dtype, field.dtype, "same_kind"):
                raise TypeError(f"{name!r} is a {np.dtype(field.dtype)} field, got dtype {value.dtype}")
            if np.dtype(field.dtype) == np.int32:
                _check_int32(name, value)
                columns = columns.view(np.int32)
            columns[:] = value.reshape(columns.shape)

    def check_finite(self, rows: Rows, num_envs: int) -> None:
        """Raise if a float field of `rows` holds a NaN or an infinity."""
        finite = np.isfinite(rows[:, : self.num_floats])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            name = next(name for name, where in self.columns.items() if where.start <= column < where.stop)
            raise ValueError(
                f"{name!r} of environment {row % num_envs} holds {rows[row, column]}; values must be finite in float32 "
                "(check_finite=False stores them all the same)"
            )

    def unpack(self, rows: Any, name: str) -> Any:
        """Field `name` of packed rows, NumPy's or JAX's: shape (batch, *field.shape), a view in NumPy."""
        field = self.fields[name]
        part = rows[:, self.columns[name]]
        if np.dtype(field.dtype) == np.int32:
            part = part.view(np.int32)
        return part.reshape(rows.shape[0], *field.shape)

    def __str__(self) -> str:
        return ", ".join(in_words(name, field.shape, field.dtype) for name, field in self.fields.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.describe() == other.describe()

    __hash__ = None  # type: ignore[assignment]

    def describe(self) -> list[list[object]]:
        """The layout as JSON: name, shape, dtype, in the order of the columns."""
        return [[name, list(f.shape), np.dtype(f.dtype).name] for name, f in self.fields.items()]


class Ring:
    """Rows written in a circle, `num_envs` at a time, so that position behind the head is age.

    Transitions are numbered as they come: `clock` is how many ever came, `oldest` the number of the oldest
    still held; number t lies in slot t mod capacity. Memory is claimed as rows are first written.
    """

    def __init__(self, capacity: int, width: int, num_envs: int) -> None:
        if num_envs < 1 or capacity < num_envs:
            raise ValueError(f"capacity must be at least num_envs >= 1, got {capacity} and {num_envs}")
        self.rows: Rows = np.zeros((capacity, width), np.float32)
        self.capacity = capacity
        self.num_envs = num_envs
        self.clock = 0
        self.oldest = 0
        self.restored = 0
        """How often it was restored: what was known of its transitions before is then void."""

    @property
    def head(self) -> int:
        """The next slot to be written."""
        return self.clock % self.capacity

    @property
    def num_stored(self) -> int:
        """How many transitions are held."""
        return self.clock - self.oldest

    def append(self, rows: Rows) -> None:
        """Write whole vector steps, the oldest first: `num_envs` rows each."""
        kept = rows[-self.capacity :]
        start = (self.clock + len(rows) - len(kept)) % self.capacity
        first = min(len(kept), self.capacity - start)
        self.rows[start : start + first] = kept[:first]
        self.rows[: len(kept) - first] = kept[first:]
        self.clock += len(rows)
        self.forget_before(self.clock - self.capacity)

    def forget_before(self, oldest: int) -> None:
        """Let go of every transition numbered below `oldest`."""
        self.oldest = max(self.oldest, oldest)

    def slots_of(self, positions: Ints) -> Ints:
        """The slots of positions behind the write head."""
        return slots_of(positions, self.head, self.capacity)


def slots_of(positions: Ints, head: int, capacity: int) -> Ints:
    """The slots of positions behind the write head: (head - 1 - position) mod capacity; its own inverse."""
    slots = (head - 1) - positions
    slots %= capacity
    return slots


def _check_int32(name: str, value: NDArray[Any]) -> None:
    if value.dtype != np.int32 and value.size:
        info = np.iinfo(np.int32)
        if value.min() < info.min or value.max() > info.max:
            raise ValueError(f"{name!r} must fit int32, got {value.min()} to {value.max()}")
