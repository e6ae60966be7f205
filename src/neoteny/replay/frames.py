"""Frames: stacked pixel observations of which each frame is stored once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neoteny.replay.ages.ageing import Ints
from neoteny.replay.storage import Field, require_scalars

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Frames:
    """A field of stacked frames: observations of shape (stack, *shape), uint8, the newest frame last.

    Given as ``"obs"`` it brings ``"next_obs"`` with it. The stack of a new episode must repeat its first frame,
    as Gymnasium's FrameStackObservation does by default.
    """

    shape: tuple[int, ...] = (84, 84)
    stack: int = 4
    finals: int | None = None
    """Episode ends whose final frame is kept; one for every 19 transitions if not given. With shorter episodes
    the oldest transitions leave early."""

    def __post_init__(self) -> None:
        if self.stack < 1 or self.stack > 255:
            raise ValueError(f"Frames: stack must be in 1..255, got {self.stack}")
        if not self.shape or any(side < 1 for side in self.shape):
            raise ValueError(f"Frames: shape must have sides >= 1, got {self.shape}")
        if self.finals is not None and self.finals < 1:
            raise ValueError(f"Frames: finals must be >= 1, got {self.finals}")


def split_fields(
    fields: Mapping[str, Field | Frames | tuple[int, ...]],
) -> tuple[Frames | None, dict[str, Field | tuple[int, ...]]]:
    """The stacked frames, if there are any, and the fields that are packed into rows."""
    others = {name: field for name, field in fields.items() if not isinstance(field, Frames)}
    frames = {name: field for name, field in fields.items() if isinstance(field, Frames)}
    if not frames:
        return None, others
    if set(frames) != {"obs"} or "next_obs" in others:
        raise ValueError(f"Frames are given once, as 'obs', and bring 'next_obs' with them; got {', '.join(fields)}")
    require_scalars(others, ("terminated", "truncated"), "Frames")
    return frames["obs"], others


class FrameStore:
    """The frames of a ring's transitions, one new frame each.

    Transition number t has its newest frame in place t mod `places`; its environment's earlier frames lie
    num_envs places apart behind it, and the next one as far ahead, written before the transition that it
    begins. There are places for the stack of the oldest transition and the frame after the newest. `depth`
    counts the steps since an episode began, so that no stack reaches over its edge. The final frame of an
    episode, which has no transition of its own, lies in a second ring behind the first.
    """

    def __init__(self, field: Frames, capacity: int, num_envs: int) -> None:
        self.field = field
        self.num_envs = num_envs
        self.places = capacity + field.stack * num_envs
        self.num_finals = self._num_finals(field, capacity, num_envs)
        self.frames: Pixels = np.zeros((self.places + self.num_finals, *field.shape), np.uint8)
        self.depth: Pixels = np.zeros(self.places, np.uint8)
        self.final: NDArray[np.int32] = np.full(self.places, -1, np.int32)
        self.ended_at: Ints = np.full(self.num_finals, -1)
        self.ends = 0
        self._starting = np.ones(num_envs, bool)

    @staticmethod
    def _num_finals(field: Frames, capacity: int, num_envs: int) -> int:
        return max(num_envs, field.finals if field.finals is not None else -(-capacity // 19))

    @staticmethod
    def num_bytes(field: Frames, capacity: int, num_envs: int) -> int:
        """What a store will come to hold."""
        places = capacity + field.stack * num_envs
        finals = FrameStore._num_finals(field, capacity, num_envs)
        return (places + finals) * int(np.prod(field.shape)) + 5 * places + 8 * finals

    def check(self, clock: int, obs: ArrayLike, next_obs: ArrayLike) -> tuple[Pixels, Pixels]:
        """The two observations as arrays, or an error if they do not go on from what was stored before."""
        shape = (self.num_envs, self.field.stack, *self.field.shape)
        arrays = []
        for name, value in (("obs", obs), ("next_obs", next_obs)):
            array = np.asarray(value)
            if array.shape != shape and not (self.num_envs == 1 and array.shape == shape[1:]):
                raise ValueError(f"{name!r} must have shape {shape}, environments first, got {array.shape}")
            if array.dtype != np.uint8:
                raise TypeError(f"{name!r} holds uint8 frames, got dtype {array.dtype}")
            arrays.append(array.reshape(shape))
        now, later = arrays
        before = self._gather(clock - self.num_envs + np.arange(self.num_envs))[:, 1:]
        for env in range(self.num_envs):
            if self._starting[env]:
                if (now[env] != now[env, -1]).any():
                    raise ValueError(
                        f"'obs' of environment {env} begins an episode, so its stack must repeat the first frame"
                    )
            elif not np.array_equal(now[env], before[env]):
                raise ValueError(
                    f"'obs' of environment {env} is not the 'next_obs' of the step before, which did not end its "
                    "episode: pass the true final observation as next_obs, and terminated or truncated with it"
                )
        if not np.array_equal(later[:, :-1], now[:, 1:]):
            raise ValueError("'next_obs' must be 'obs' moved on by one frame, the newest last")
        return now, later

    def append(self, clock: int, obs: Pixels, next_obs: Pixels, ended: NDArray[np.bool_]) -> int:
        """Store the step that begins with transition number `clock`; the oldest number still whole."""
        here = (clock + np.arange(self.num_envs)) % self.places
        ahead = (here + self.num_envs) % self.places
        before = (here - self.num_envs) % self.places
        self.frames[here] = obs[:, -1]
        deeper = np.minimum(self.depth[before].astype(np.int64) + 1, self.field.stack - 1)
        self.depth[here] = np.where(self._starting, 0, deeper)
        self.final[here] = -1
        self.frames[ahead] = next_obs[:, -1]
        oldest = self._keep_finals(clock, ended, next_obs[:, -1])
        self._starting = ended.copy()
        return oldest

    def cut(self, clock: int) -> int:
        """End every environment's episode with its newest transition; the oldest number still whole."""
        newest = clock - self.num_envs
        ahead = self.frames[(clock + np.arange(self.num_envs)) % self.places]
        oldest = self._keep_finals(newest, ~self._starting, ahead)
        self._starting[:] = True
        return oldest

    def _keep_finals(self, first: int, ended: NDArray[np.bool_], frames: Pixels) -> int:
        """Keep the final frame of each transition first, first + 1, .. that ended; the oldest number still whole."""
        oldest = 0
        for env in np.flatnonzero(ended).tolist():
            kept = self.ends % self.num_finals
            oldest = max(oldest, int(self.ended_at[kept]) + 1)
            self.ended_at[kept] = first + env
            self.final[(first + env) % self.places] = self.places + kept
            self.frames[self.places + kept] = frames[env]
            self.ends += 1
        return oldest

    def observations(self, numbers: Ints, further: Ints | None) -> dict[str, Pixels]:
        """The stacks before the transitions with these numbers, and after them, or after those `further` on."""
        before = self._gather(numbers)
        after = before if further is None else self._gather(numbers + further)
        return {"obs": before[:, :-1], "next_obs": after[:, 1:]}

    def _gather(self, numbers: Ints) -> Pixels:
        """The frames of transitions: shape (batch, stack + 1, ...), the last the next observation's newest."""
        steps = np.arange(self.field.stack - 1, -2, -1)
        here = numbers % self.places
        back = np.minimum(steps, self.depth[here, None])
        index = (here[:, None] - back * self.num_envs) % self.places
        final = self.final[here]
        index[:, -1] = np.where(final >= 0, final, index[:, -1])
        return self.frames.take(index, axis=0, mode="clip")

    def first_needed(self, oldest: int) -> int:
        """The number of the first transition whose frame is part of a stack, if `oldest` is the oldest one held."""
        return max(0, oldest - (self.field.stack - 1) * self.num_envs)

    def transitions(self, numbers: Ints) -> dict[str, NDArray[Any]]:
        """What is stored of transitions, by number: one frame each, and the final frames of those that ended."""
        here = numbers % self.places
        final = self.final[here]
        return {
            "frames": self.frames[here],
            "depth": self.depth[here],
            "final": final,
            "final_frames": self.frames[final[final >= 0]],
        }

    def put(self, numbers: Ints, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store again what `transitions` gave; older transitions before newer ones."""
        here = numbers % self.places
        for name in ("frames", "depth", "final"):
            getattr(self, name)[here] = arrays[name]
        ended = arrays["final"] >= 0
        finals = arrays["final"][ended]
        self.frames[finals] = arrays["final_frames"]
        self.ended_at[finals - self.places] = numbers[ended]

    def state(self, clock: int) -> dict[str, Any]:
        """What is not a transition's own: the frames that come next, and where episodes begin."""
        ahead = self.frames[(clock + np.arange(self.num_envs)) % self.places]
        return {"ahead": ahead, "starting": self._starting.copy(), "ends": self.ends}

    def restore(self, state: Mapping[str, Any], clock: int) -> None:
        """Become the store that `state` was taken from, but for its transitions, which are to be put."""
        self.ended_at[:] = -1
        self.frames[(clock + np.arange(self.num_envs)) % self.places] = state["ahead"]
        self._starting = np.array(state["starting"], bool)
        self.ends = state["ends"]
