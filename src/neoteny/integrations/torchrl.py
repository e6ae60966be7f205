"""TorchRL: ``AgeWeightedSampler``, for the `sampler` of any replay buffer that a round-robin writer fills.

    TensorDictReplayBuffer(storage=LazyTensorStorage(1_000_000), sampler=AgeWeightedSampler(80_000), batch_size=256)

A TorchRL sampler sees the slots that each ``add`` and ``extend`` wrote, and nothing of the writer. From these
it knows the order in which a ring was filled, which is all that ages need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from neoteny.errors import missing_extra
from neoteny.replay import sampling
from neoteny.replay.ages.ageing import Floats, Ints, Schedule
from neoteny.replay.storage import slots_of

try:
    import torch
    from tensordict import TensorDict
    from torchrl.data.replay_buffers.samplers import Sampler
except ImportError as error:
    raise ImportError(str(missing_extra(__name__, "torchrl", error)), name=error.name) from error


class AgeWeightedSampler(Sampler):
    """Draws stored transitions by an exact law of their age, with replacement.

    schedule: the weight of each age, any schedule of ours or your own.
    decay_steps, min_weight: instead of it T, in transitions, and what old ones keep, of max(w_min, 1 - age / T).
    decay_steps="auto" makes T a tenth of what is stored, decay_fraction another fraction of it.
    num_envs: how many rows each vector step stores; they share an age.
    env_first: how the rows of an ``extend`` that brings several vector steps of several environments lie. True if
    those of one environment lie together, as in a collector's [envs, time] batch after ``reshape(-1)``; False if
    those of one step do. Left out, such an extend is refused: its indices do not tell. A storage of several
    dimensions has the steps in its first, and must be left to itself.
    """

    def __init__(
        self,
        schedule: Schedule | None = None,
        *,
        decay_steps: float | Literal["auto"] | None = None,
        min_weight: float | None = None,
        decay_fraction: float | None = None,
        num_envs: int = 1,
        env_first: bool | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be >= 1, got {num_envs}")
        self.num_envs = num_envs
        self.env_first = env_first
        self._ages = sampling.AgeWeightedSampler(
            schedule, decay_steps=decay_steps, min_weight=min_weight, decay_fraction=decay_fraction
        )
        # Rows written since the buffer was empty, the next slot, the rows of each env_first extend (0: not known).
        # In shared memory, because a collector may extend the buffer in another process.
        self._order = torch.zeros(3, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def schedule(self) -> Schedule:
        """The weight of each age."""
        return self._ages.schedule

    def sample(self, storage: Any, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Indices of `batch_size` rows; of a storage of several dimensions, a tuple of indices."""
        if len(storage) == 0:
            raise RuntimeError("Cannot sample from an empty storage.")  # the words of TorchRL's own samplers
        sampling.check_batch_size(batch_size)
        columns = tuple(storage.shape[1:]) if storage.ndim > 1 else ()
        per_row = math.prod(columns)
        rows = storage.shape[0] if columns else len(storage)
        capacity = -(-storage.max_size // per_row)
        written, head, per_extend = self._order.tolist()
        self._check(columns, rows, capacity, written, head, per_extend)

        rng = self._rng if self._rng is not None else getattr(storage, "_rng", None)  # set_sampler sets none
        random = cast(np.random.Generator, _TorchRandom(rng))  # the laws call nothing else of a generator
        positions = self._ages.positions(random, batch_size, rows * per_row, self.num_envs, written * per_row)
        if columns:
            step, column = np.divmod(positions, per_row)
            index = (slots_of(step, written, capacity), *np.unravel_index(column, columns))
            return tuple(_tensor(part, storage) for part in index), {}
        if per_extend:
            return _tensor(self._slots_env_first(positions, written, capacity, per_extend), storage), {}
        return _tensor(slots_of(positions, written, capacity), storage), {}

    def add(self, index: Any) -> None:
        """Take note of one row that was written."""
        self.extend(index if isinstance(index, torch.Tensor) and index.ndim else torch.as_tensor([index]))

    def extend(self, index: Any) -> None:
        """Take note of rows that were written, in the order of their indices."""
        slots = index.cpu().numpy()
        if not len(slots):
            return
        written, head, per_extend = self._order.tolist()
        self._order.zero_()  # after an error the order is not known
        flat = slots.ndim == 1
        if len(slots) % self.num_envs:
            raise ValueError(
                f"an add or extend must bring whole vector steps, a multiple of num_envs={self.num_envs} rows, "
                f"got {len(slots)}"
            )
        if flat and self.num_envs > 1:
            per_extend = self._rows_per_extend(len(slots), per_extend)
        rows = slots if flat else slots[:: self.num_envs, 0]
        expected = np.append(rows[0] if head < 0 else head, rows[:-1] + 1)
        if wrong := np.flatnonzero((rows != expected) & (rows != 0)).tolist():
            raise ValueError(
                f"slot {rows[wrong[0]]} was written where slot {expected[wrong[0]]} was next: AgeWeightedSampler must "
                "see every add, by a RoundRobinWriter (a buffer filled before: sampler.join(buffer.write_count))"
            )
        if len(rows) > rows.max() + 1:
            raise ValueError(
                f"an extend of {len(rows)} rows goes around its storage of {rows.max() + 1} more than once, and torch "
                "does not say which rows stay: extend by at most as many as it holds"
            )
        self._order[:] = torch.tensor([written + len(rows), int(rows[-1]) + 1, per_extend])

    def join(self, written: int) -> None:
        """Join a buffer that a RoundRobinWriter wrote `written` rows into before: its ``write_count``."""
        if written < 0:
            raise ValueError(f"written, the rows ever written into the buffer, must be >= 0, got {written}")
        if self.env_first and self.num_envs > 1:
            raise ValueError("env_first=True needs to see every extend: a buffer filled before cannot be joined")
        self._order[:] = torch.tensor([written, -1 if written else 0, 0])

    def state_dict(self) -> dict[str, Any]:
        """The order of what is stored. The schedule is not part of it."""
        written, head, per_extend = self._order.tolist()
        return {
            "written": written,
            "next_slot": head,
            "rows_per_extend": per_extend,
            "num_envs": self.num_envs,
            "env_first": -1 if self.env_first is None else int(self.env_first),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the order from a saved state."""
        own = self.state_dict()
        if missing := own.keys() - state_dict.keys():
            raise ValueError(
                f"this is not the state of an AgeWeightedSampler: it lacks {', '.join(sorted(missing))} "
                "(to take over the buffer of another sampler: sampler.join(buffer.write_count))"
            )
        for name in ("num_envs", "env_first"):
            if int(state_dict[name]) != own[name]:
                raise ValueError(f"this state was saved with {name}={int(state_dict[name])}, here it is {own[name]}")
        written, head, per_extend = (int(state_dict[name]) for name in ("written", "next_slot", "rows_per_extend"))
        if written < 0 or not -1 <= head <= written or per_extend < 0 or per_extend % self.num_envs:
            raise ValueError(
                f"the saved order cannot be right: {written} rows written, the next to slot {head}, {per_extend} rows "
                f"in each extend of num_envs={self.num_envs}"
            )
        self._order[:] = torch.tensor([written, head, per_extend])

    def dumps(self, path: Any) -> None:
        """Write the state to the directory `path`."""
        Path(path).mkdir(exist_ok=True)
        TensorDict(self.state_dict()).memmap(path)

    def loads(self, path: Any) -> None:
        """Read the state from the directory `path`."""
        self.load_state_dict(TensorDict.load_memmap(path).to_dict())

    def __repr__(self) -> str:
        order = "" if self.env_first is None else f", env_first={self.env_first}"
        return f"{type(self).__name__}({self.schedule}, num_envs={self.num_envs}{order})"

    def _empty(self) -> None:
        self._order.zero_()

    def _rows_per_extend(self, rows: int, before: int) -> int:
        """The rows of each env_first extend, or 0 where position is age."""
        if self.env_first is None and rows > self.num_envs:
            raise ValueError(
                f"an extend of {rows} rows from num_envs={self.num_envs} holds {rows // self.num_envs} vector steps: "
                "say env_first=True if the rows of an environment lie together, as after reshape(-1) of a collector's "
                "batch, or env_first=False if those of a step do"
            )
        if not self.env_first:
            return 0
        if before not in (0, rows):
            raise ValueError(
                f"with env_first=True every extend must bring as many rows as the first, {before}, got {rows}"
            )
        return rows

    def _check(
        self, columns: tuple[int, ...], rows: int, capacity: int, written: int, head: int, per_extend: int
    ) -> None:
        """Refuse a storage that was not filled in the order that was seen."""
        if columns and (math.prod(columns) != self.num_envs or self.env_first is not None):
            raise ValueError(
                f"each row of this storage holds the {math.prod(columns)} transitions of one vector step, of shape "
                f"{columns}: say num_envs={math.prod(columns)} and leave out env_first, got {self}"
            )
        if rows != min(written, capacity) or (head >= 0 and (written - head) % capacity):
            raise RuntimeError(
                f"the storage holds {rows} of {capacity} rows, but this sampler saw {written} written, the last to "
                f"slot {head - 1}: make it with its buffer, or say sampler.join(buffer.write_count)"
            )
        if per_extend and capacity % per_extend:
            raise ValueError(
                f"with env_first=True the storage must hold a whole number of extends: {capacity} rows are no multiple "
                f"of {per_extend}"
            )

    def _slots_env_first(self, positions: Ints, written: int, capacity: int, per_extend: int) -> Ints:
        """Slots where each extend wrote all steps of its first environment, then of its second, and so on."""
        extends_back, rows_back = np.divmod(positions, per_extend)
        step, env = np.divmod(per_extend - 1 - rows_back, self.num_envs)
        first = written - (extends_back + 1) * per_extend
        return (first + env * (per_extend // self.num_envs) + step) % capacity


class _TorchRandom:
    """The two kinds of numbers that our laws draw, from torch: a generator's, or if None the global ones."""

    def __init__(self, generator: Any) -> None:
        self._from = {"generator": generator, "device": "cpu" if generator is None else generator.device}
        self._left: Floats = np.zeros(0)

    def random(self, size: int | tuple[int, ...]) -> Floats:
        if isinstance(size, tuple):
            return self.random(math.prod(size)).reshape(size)
        if size > len(self._left):  # twice as many: linear decay asks a second time, and a call costs more than numbers
            self._left = torch.rand(2 * size, dtype=torch.float64, **self._from).cpu().numpy()
        numbers, self._left = self._left[:size], self._left[size:]
        return numbers

    def integers(self, low: int, high: int, size: int) -> Ints:
        return torch.randint(low, high, (size,), **self._from).cpu().numpy()


def _tensor(index: Any, storage: Any) -> Any:
    tensor = torch.from_numpy(index)
    device = getattr(storage, "device", None)
    return tensor if device in (None, "auto") else tensor.to(device)
