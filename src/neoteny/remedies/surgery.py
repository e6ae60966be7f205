"""Surgery: changing parts of a network's parameters, and of its target and its optimiser's state with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from neoteny.agents.agent import NetworkState, TrainableNetwork
from neoteny.agents.learner import Surgery
from neoteny.networks import HiddenLayer, Path
from neoteny.plasticity.flax import Collected, collect

Tree = Any


def change(
    network: TrainableNetwork,
    own: NetworkState,
    key: Array,
    how: Callable[[Tree, Tree], tuple[Tree, Tree]],
    restart: bool,
) -> Surgery:
    """Change a network's parameters, its target's by the same draw, and clear the optimiser's state of what changed.

    Args:
        network: the network that is changed.
        own: its state.
        key: the randomness of the new parameters.
        how: (params, new parameters) -> (params, which were changed).
        restart: whether the optimiser's count of steps restarts; see `cleared`.
    """
    fresh = network.init(key)["params"]
    params, changed = how(own.params["params"], fresh)
    target = None if own.target is None else {**own.target, "params": how(own.target["params"], fresh)[0]}
    opt = cleared(own.opt, own.params["params"], changed, restart)
    return Surgery(replace(own, params={**own.params, "params": params}, target=target, opt=opt), changed)


def nothing(own: NetworkState) -> Surgery:
    """Leave a network as it is, its optimiser too."""
    return Surgery(own, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), own.params["params"]))


def losses_of(state: Tree, network: TrainableNetwork, batch: dict[str, Array], key: Array) -> Collected:
    """What passes through a network, forward and back, under its training loss."""
    variables = getattr(state, network.name).params
    return collect(
        variables["params"],
        lambda params: network.forward({**variables, "params": params}, state, batch),
        lambda outputs: network.loss(outputs, state, batch, key)[0],
    )


def cleared(opt: Tree, params: Tree, changed: Tree, restart: bool | Array) -> Tree:
    """An optimiser's state in which everything that belongs to the changed parameters is 0.

    Every part of the state that has the parameters' own shape (Adam's moments, a utility) is cleared where they were
    changed; a whole number without a shape is a count of steps, which `restart` sets to 0, but for that of a learning
    rate's schedule, which is over the whole run. A random key, the one thing that is uint32, is kept.

    Adam divides its moments by 1 - beta^count, so that they are right from the first step on. With moments at 0 and a
    count that goes on, the next steps are up to 3.2 x lr; a new Adam's are at most 1 x. So after surgery on layers the
    count restarts: what was changed takes a new Adam's steps. What was kept shares the count and keeps its moments: its
    steps are smaller for some time (0.32 x what they were, 0.15 x at the 10th, 0.31 x at the 100th, 0.8 x at the
    1,000th), and never larger. Recycling changes few weights, often, and keeps the count, as Dopamine does.

    Args:
        opt: the optimiser's state.
        params: the trained parameters that it is for.
        changed: which of them were changed, booleans of their shapes or one for each.
        restart: whether counts of steps restart.

    Raises:
        ValueError: if the state has a part that is neither, which would silently stay as it was.
    """
    like_params = like(params)

    def clear(node: Any) -> Any:
        if like_params(node):
            return jax.tree.map(lambda part, touch: jnp.where(touch, jnp.zeros_like(part), part), node, changed)
        if isinstance(node, optax.ScaleByScheduleState) or jnp.result_type(node) == jnp.uint32:
            return node
        if jnp.ndim(node) == 0 and jnp.issubdtype(jnp.result_type(node), jnp.integer):
            return jnp.where(restart, jnp.zeros_like(node), node)
        raise ValueError(
            f"the optimiser's state has a part of shape {jnp.shape(node)} that belongs to no parameter, so surgery "
            "cannot clear it: use an optimiser whose state has the parameters' own shapes, such as optax.adam"
        )

    def is_whole(node: Any) -> bool:
        return isinstance(node, optax.ScaleByScheduleState) or like_params(node)

    return jax.tree.map(clear, opt, is_leaf=is_whole)


def like(params: Tree) -> Callable[[Any], bool]:
    """Return what tells whether a part of an optimiser's state has the structure and the shapes of the parameters."""
    structure: Any = jax.tree.structure(params)
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]

    def is_like(node: Any) -> bool:
        return jax.tree.structure(node) == structure and [leaf.shape for leaf in jax.tree.leaves(node)] == shapes

    return is_like


def renewed(remembered: Tree, own: NetworkState, changed: Tree) -> Tree:
    """Return remembered parameters, in which those that surgery changed have the values that it gave them."""
    return jax.tree.map(jnp.where, changed, own.params["params"], remembered)


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


def masks(params: Tree, flagged: Mapping[Path, Array], hidden: Sequence[HiddenLayer]) -> tuple[Tree, Tree]:
    """Which parameters come into the flagged units, and which go out of them: two trees of booleans like `params`.

    A unit is a column of its own kernel, an entry of what is its own beside the kernel (`HiddenLayer.per_unit`), and a
    row of each kernel that reads it. A convolution's channel that is flattened has a row for every position, and a unit
    with CReLU two: the units come last, so the mask repeats as a whole.
    """
    into = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), params)
    out = into
    for layer in hidden:
        mask = flagged[layer.incoming]
        for path in (layer.incoming, *layer.per_unit):
            own = {name: jnp.broadcast_to(mask, leaf.shape) for name, leaf in at(params, path).items()}
            into = put(into, path, own)
        for reader in layer.outgoing:
            path = (*reader, "kernel")
            kernel = at(params, path)
            rows = jnp.tile(mask, kernel.shape[-2] // len(mask))
            out = put(out, path, at(out, path) | jnp.broadcast_to(rows[:, None], kernel.shape))
    return into, out


def recycled(params: Tree, fresh: Tree, into: Tree, out: Tree) -> Tree:
    """`params` with new weights into the flagged units, and none out of them."""

    def one(old: Array, new: Array, comes_in: Array, goes_out: Array) -> Array:
        return jnp.where(goes_out, 0.0, jnp.where(comes_in, new, old))

    return jax.tree.map(one, params, fresh, into, out)
