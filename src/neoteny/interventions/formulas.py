"""The interventions on one network's parameters: shrink and perturb, reset, injection. Recycling is in recycle.py."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from neoteny.interventions.surgery import at, matching, put, without
from neoteny.networks import Anatomy, Path

Tree = Any


def shrink_perturb(params: Tree, fresh: Tree, keep: float) -> tuple[Tree, Tree]:
    """theta <- keep theta + (1 - keep) theta_fresh, heads included; Ash & Adams (2020). And which were changed.

    Kernels and biases; LayerNorm's scales are left, and so is what an injection has frozen.
    """
    changed = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.full(leaf.shape, path[-1].key != "scale" and not _frozen(path)), params
    )
    mixed = jax.tree.map(
        lambda old, new, touch: jnp.where(touch, keep * old + (1.0 - keep) * new, old),
        params,
        matching(params, fresh),
        changed,
    )
    return mixed, changed


def reset(params: Tree, fresh: Tree, since: tuple[Path, ...] | None) -> tuple[Tree, Tree]:
    """New parameters for all layers, or for those named, and which were changed; Nikishin et al. (2022)."""

    def touched(path: Any, leaf: Any) -> Any:
        names = tuple(part.key for part in path)
        names = names[2:] if names[0] == "injected" else names[1:]
        named = since is None or any(names[: len(part)] == part for part in since)
        return jnp.full(leaf.shape, named and not _frozen(path))

    changed = jax.tree_util.tree_map_with_path(touched, params)
    new = jax.tree.map(lambda old, new, touch: jnp.where(touch, new, old), params, matching(params, fresh), changed)
    return new, changed


def inject(params: Tree, fresh: Tree, anatomy: Anatomy) -> Tree:
    """h_theta + h_theta1 - h_theta2 from the last block to the heads, theta1 = theta2 = fresh; Nikishin et al. (2023).

    theta's own tail and theta2 are frozen from now on. On a last linear layer alone (the paper's wording) this would
    only re-parametrise it, so the last block is part of it. The output does not change now.
    """
    if "injected" in params:
        raise ValueError("plasticity was injected already: it is done once")
    tail = anatomy.since(anatomy.last_block)
    kept: Tree = {}
    new: Tree = {}
    body = params["params"]
    for path in tail:
        kept = put(kept, path, at(body, path))
        new = put(new, path, at(fresh["params"], path))
        body = without(body, path)
    return {"params": body, "injected": {"kept": kept, "trained": new, "taken": jax.tree.map(jnp.copy, new)}}


def inject_moments(opt: Tree, anatomy: Anatomy) -> Tree:
    """An optimiser's state for the parameters that `inject` gives: the tail's moments and the count begin at 0.

    What comes before the tail keeps its moments; `surgery.cleared` says what the count means for it.
    """

    def moments(tree: Tree) -> Tree:
        zeros = jax.tree.map(jnp.zeros_like, tree)
        made = inject(tree, zeros, anatomy)
        return {
            **made,
            "injected": {**made["injected"], "kept": jax.tree.map(jnp.zeros_like, made["injected"]["kept"])},
        }

    def change(node: Any) -> Any:
        if isinstance(node, optax.ScaleByAdamState):
            return node._replace(mu=moments(node.mu), nu=moments(node.nu), count=jnp.zeros_like(node.count))
        return node

    return jax.tree.map(change, opt, is_leaf=lambda node: isinstance(node, optax.ScaleByAdamState))


def _frozen(path: Any) -> bool:
    return path[0].key == "injected" and path[1].key != "trained"
