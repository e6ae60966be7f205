"""Changing parts of a parameter tree, and of the optimiser's moments with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from neoteny.networks import Hidden, Path, locate

Tree = Any


def at(tree: Tree, path: Path) -> Any:
    """The part of a nested dict at a path."""
    for name in path:
        tree = tree[name]
    return tree


def put(tree: Tree, path: Path, value: Any) -> Tree:
    """A nested dict with `value` at a path."""
    if not path:
        return value
    return {**tree, path[0]: put(tree.get(path[0], {}), path[1:], value)}


def without(tree: Tree, path: Path) -> Tree:
    """A nested dict without what is at a path."""
    if len(path) == 1:
        return {name: part for name, part in tree.items() if name != path[0]}
    return {**tree, path[0]: without(tree[path[0]], path[1:])}


def matching(params: Tree, fresh: Tree) -> Tree:
    """New parameters in the shape of `params`: what an injection has frozen stays as it is."""
    if "injected" not in params:
        return fresh
    injected = params["injected"]
    trained = jax.tree_util.tree_map_with_path(
        lambda path, _: at(fresh["params"], tuple(part.key for part in path)), injected["trained"]
    )
    body = jax.tree_util.tree_map_with_path(
        lambda path, _: at(fresh["params"], tuple(part.key for part in path)), params["params"]
    )
    return {"params": body, "injected": {**injected, "trained": trained}}


def masks(params: Tree, flagged: Mapping[Path, Array], hidden: Sequence[Hidden]) -> tuple[Tree, Tree]:
    """Which parameters come into the flagged units, and which go out of them: two trees of booleans like `params`.

    A unit is a column of its own kernel, and a row of each that reads it. A convolution's channel that is flattened
    has a row for every position: the channels come last, so the mask repeats as a whole.
    """
    into = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), params)
    out = into
    for layer in hidden:
        mask = flagged[layer.incoming]
        path = locate(params, layer.incoming)
        own = {name: jnp.broadcast_to(mask, leaf.shape) for name, leaf in at(params, path).items()}
        into = put(into, path, own)
        for reader in layer.outgoing:
            path = (*locate(params, reader), "kernel")
            kernel = at(params, path)
            rows = jnp.tile(mask, kernel.shape[-2] // len(mask))
            out = put(out, path, at(out, path) | jnp.broadcast_to(rows[:, None], kernel.shape))
    return into, out


def recycled(params: Tree, fresh: Tree, into: Tree, out: Tree) -> Tree:
    """`params` with new weights into the flagged units, and none out of them."""

    def one(old: Array, new: Array, comes_in: Array, goes_out: Array) -> Array:
        return jnp.where(goes_out, 0.0, jnp.where(comes_in, new, old))

    return jax.tree.map(one, params, matching(params, fresh), into, out)


def cleared(opt: Tree, changed: Tree, restart: bool = False) -> Tree:
    """An optimiser's state with Adam's moments of the changed parameters at 0, and with `restart` its count too.

    Adam divides its moments by 1 - beta^count, so that they are right from the first step on. With moments at 0 and a
    count that goes on, the next steps are up to 3.2 x lr; a new Adam's are at most 1 x. So after surgery on layers the
    count restarts: what was changed takes a new Adam's steps. What was kept shares the count and keeps its moments: its
    steps are smaller for some time (0.32 x what they were, 0.15 x at the 10th, 0.31 x at the 100th, 0.8 x at the
    1,000th), and never larger. Recycling changes few weights, often, and keeps the count, as Dopamine does.
    """

    def clear(node: Any) -> Any:
        if not isinstance(node, optax.ScaleByAdamState):
            return node
        zero = [jax.tree.map(lambda m, c: jnp.where(c, 0.0, m), moments, changed) for moments in (node.mu, node.nu)]
        return node._replace(mu=zero[0], nu=zero[1], count=jnp.zeros_like(node.count) if restart else node.count)

    return jax.tree.map(clear, opt, is_leaf=lambda node: isinstance(node, optax.ScaleByAdamState))
