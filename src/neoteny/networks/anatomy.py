"""What a network is made of: its hidden layers, its heads, the order of its parts. Remedies and probes go by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

Path = tuple[str, ...]


@dataclass(frozen=True)
class HiddenLayer:
    """A layer of hidden units: the path of its own kernel in the parameters, and of those that read its units.

    A kernel that reads the units more than once, as after CReLU or after channels are flattened, has its rows in as
    many blocks, each of all units in their order.
    """

    incoming: Path
    outgoing: tuple[Path, ...]
    per_unit: tuple[Path, ...] = ()
    """Other parameters of which each unit has its own: a LayerNorm or a scaler between the kernel and the
    non-linearity."""


class Parts(NamedTuple):
    """What a trunk is made of, by paths inside it; a trunk tells it by a method `parts`."""

    hidden: tuple[HiddenLayer, ...]
    """Its layers of hidden units; one that the heads read has no outgoing path here."""
    order: tuple[str, ...]
    """All its parts in the order they compute."""
    last_block: str
    """The part with which its last block begins."""


@dataclass(frozen=True)
class Anatomy:
    """What a network is made of, by paths into its parameters."""

    hidden: tuple[HiddenLayer, ...]
    """Its layers of hidden units; in SimBa the 4 h of each block. Not its heads."""
    heads: tuple[Path, ...]
    """Its last layers; the first one's input is what is meant by features."""
    branches: tuple[tuple[Path, ...], ...]
    """All its parts in the order they compute, heads last; one list for each critic."""
    last_block: str
    """Where its last block begins."""

    def names(self) -> tuple[str, ...]:
        """The names that `since` knows, in the order they compute; every head is `head`."""
        return tuple(dict.fromkeys(name for branch in self.branches for name in _names(branch)))

    def since(self, name: str) -> tuple[Path, ...]:
        """The parts from the layer called `name`, or `head`, to the end of every branch; none if there is no such."""
        parts: list[Path] = []
        for branch in self.branches:
            if name in _names(branch):
                parts += branch[_names(branch).index(name) :]
        return tuple(parts)


def _names(branch: tuple[Path, ...]) -> list[str]:
    """Of each part; those of a trunk lie in it, and heads, whatever they are called, beside it."""
    return [part[-1] if len(part) > 1 else "head" for part in branch]


def assemble(parts: Parts, trunks: Sequence[tuple[str, Sequence[str]]], last_layer: Path) -> Anatomy:
    """Return the anatomy of a network.

    Args:
        parts: of its trunk.
        trunks: the name of each copy of the trunk, and the names of the heads on it.
        last_layer: where in a head its last layer is.
    """
    hidden: list[HiddenLayer] = []
    heads: list[Path] = []
    branches: list[tuple[Path, ...]] = []
    for name, ends in trunks:
        own = tuple((end, *last_layer) for end in ends)
        for layer in parts.hidden:
            readers = tuple((name, *path) for path in layer.outgoing) or own
            per_unit = tuple((name, *path) for path in layer.per_unit)
            hidden.append(HiddenLayer((name, *layer.incoming), readers, per_unit))
        heads += own
        branches.append((*((name, part) for part in parts.order), *((end,) for end in ends)))
    return Anatomy(tuple(hidden), tuple(heads), tuple(branches), parts.last_block)


def chain(kernels: Sequence[Path], per_unit: Sequence[Path] = ()) -> tuple[HiddenLayer, ...]:
    """Return hidden layers of which each is read by the next and the last by the heads.

    Args:
        kernels: the path of each one's kernel.
        per_unit: of each layer, if there are any, the other parameters of its units.
    """
    readers: list[tuple[Path, ...]] = [*((path,) for path in kernels[1:]), ()]
    extra: list[tuple[Path, ...]] = [(path,) for path in per_unit] or [()] * len(kernels)
    return tuple(HiddenLayer(*layer) for layer in zip(kernels, readers, extra, strict=True))
