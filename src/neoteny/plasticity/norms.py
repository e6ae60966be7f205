"""Norms of gradients and weights, over trees: arrays in dicts, lists and tuples, nested in any way.

Plain formulas for NumPy and JAX arrays alike, inside ``jax.jit`` too; a torch tensor is passed as ``.numpy()``. All
return 0-d arrays of the kind that went in. NaN in, NaN out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


def l1_norm(tree: Any) -> Any:
    """|g|_1, the sum of |g| over every entry: the gradient norm of SWD (ICLR 2026), Section 6.2 and Figure 5."""
    return sum(abs(leaf).sum() for leaf in leaves(tree))


def l1_per_parameter(tree: Any) -> Any:
    """|g|_1 / P, the mean of |g| over all P entries: comparable between networks of different sizes. Not in SWD."""
    return l1_norm(tree) / sum(leaf.size for leaf in leaves(tree))


def l2_norm(tree: Any) -> Any:
    """|g|_2 = sqrt(sum g^2) over every entry, the tree taken as one vector. Not in SWD."""
    return sum((leaf * leaf).sum() for leaf in leaves(tree)) ** 0.5


def weight_norm(weights: Any) -> Any:
    """|w|_2, biases and LayerNorm scales included; its growth slows learning (Lyle et al. 2024). Not in SWD."""
    return l2_norm(weights)


def effective_learning_rate(gradients: Any, weights: Any) -> dict[str, Any]:
    """|g|_2 / |w|_2 of each layer, by its path: how far a step of size 1 moves it, relative to what it is.

    `gradients` and `weights` are trees of one structure. A layer is what holds arrays directly, such as a kernel with
    its bias, and counts as one vector. Weights that are all 0 have no scale to move by: NaN. Not in SWD; the
    optimiser's own step size is left out.
    """
    slopes, scales = dict(_layers(gradients)), dict(_layers(weights))
    if slopes.keys() != scales.keys():
        raise ValueError(f"gradients and weights must have the same layers, got {[*slopes]} and {[*scales]}")
    return {name: _ratio(l2_norm(slopes[name]), l2_norm(scales[name])) for name in slopes}


def leaves(tree: Any) -> Iterator[Any]:
    """The arrays of a tree of dicts, lists and tuples."""
    for _, arrays in _layers(tree):
        yield from arrays


def namespace(array: Any) -> Any:
    """The functions that go with an array: ``jax.numpy`` for JAX's, traced or not, and NumPy for all else."""
    own = getattr(array, "__array_namespace__", None)  # NumPy's own arrays have it from 2.0 on
    return own() if own else np


def _layers(tree: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Each part of a tree that holds arrays directly, by its path (``""`` for the tree itself), and its arrays."""
    arrays = []
    for name, part in _parts(tree):
        if isinstance(part, Mapping | list | tuple):
            yield from _layers(part, f"{path}/{name}" if path else str(name))
        else:
            arrays.append(part)
    if arrays:
        yield path, arrays


def _parts(tree: Any) -> Iterator[tuple[object, Any]]:
    """What a tree holds, by name or by number; an array alone is a tree of one."""
    if isinstance(tree, Mapping):
        yield from tree.items()
    else:
        yield from enumerate(tree if isinstance(tree, list | tuple) else [tree])


def _ratio(slope: Any, scale: Any) -> Any:
    """slope / scale, and NaN where scale is 0."""
    where = namespace(scale).where
    return where(scale == 0, np.nan, slope / where(scale == 0, 1.0, scale))
