"""A sampled batch: named fields over packed arrays."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neoteny.replay.ages.ageing import Ints, ages_of
from neoteny.replay.drawing import Draw
from neoteny.replay.frames import Pixels
from neoteny.replay.storage import Layout, Ring, Rows, in_words
from neoteny.replay.tensors import Convert


class Batch(Mapping[str, Any]):
    """A sampled batch: ``batch["obs"]`` and so on are views into one packed array (pixels: into another), or tensors
    made of them.

    rows: the packed array. positions: how far behind the newest each transition was when it was drawn. slots: where
    in the ring it lay. weights: importance weights, of a prioritised sampler.
    """

    __slots__ = ("_convert", "_layout", "clock", "num_envs", "pixels", "positions", "rows", "slots", "weights")

    def __init__(
        self,
        rows: Rows,
        pixels: dict[str, Pixels],
        draw: Draw,
        layout: Layout,
        ring: Ring,
        convert: Convert | None = None,
    ) -> None:
        self.rows = rows
        self.pixels = pixels
        self.positions, self.slots, self.weights = draw
        self.clock, self.num_envs = ring.clock, ring.num_envs
        self._layout, self._convert = layout, convert
        if convert is not None and self.weights is not None:
            self.weights = convert(self.weights)

    def __getitem__(self, name: str) -> Any:
        array = self.pixels[name] if name in self.pixels else self._layout.unpack(self.rows, name)
        return array if self._convert is None else self._convert(array)

    def __iter__(self) -> Iterator[str]:
        yield from self._layout.fields
        yield from self.pixels

    def __len__(self) -> int:
        return len(self._layout.fields) + len(self.pixels)

    def __repr__(self) -> str:
        pixels = [in_words(name, value.shape[1:], value.dtype) for name, value in self.pixels.items()]
        weighted = "" if self.weights is None else ", with importance weights"
        return f"Batch({len(self.rows):,} transitions: {', '.join([str(self._layout), *pixels])}{weighted})"

    def only(self, which: NDArray[np.bool_]) -> Batch:
        """The transitions for which `which` is true."""
        part = copy.copy(self)
        part.rows, part.positions, part.slots = self.rows[which], self.positions[which], self.slots[which]
        part.pixels = {name: value[which] for name, value in self.pixels.items()}
        part.weights = None if self.weights is None else self.weights[which]
        return part

    @property
    def numbers(self) -> Ints:
        """The clock at which each transition was added."""
        return self.clock - 1 - self.positions

    @property
    def ages(self) -> Ints:
        """The age of each transition when it was drawn."""
        return ages_of(self.positions, self.num_envs)
