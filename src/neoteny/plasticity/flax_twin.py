"""Training the twins of the fresh-twin gap in JAX; see `neoteny.plasticity.fresh_twin` for what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import optax
from jax import Array

from neoteny.plasticity.fresh_twin import Gap, compare

Tree = Any
Loss = Callable[[Tree, Tree], Array]
"""(trained parameters, batch) -> the mean loss, against targets that do not depend on the parameters."""


class Twin(NamedTuple):
    """A network on its way."""

    params: Tree
    opt: Tree


def begin(params: Tree, optimiser: optax.GradientTransformation) -> Twin:
    """A network before its first update, with a new optimiser."""
    return Twin(params, optimiser.init(params))


def advance(
    twin: Twin,
    batch: Tree,
    loss: Loss,
    optimiser: optax.GradientTransformation,
    project: Callable[[Tree], Tree] | None = None,
) -> Twin:
    """One update. project: what keeps the parameters to the network's constraint, if it has one."""
    updates, opt = optimiser.update(jax.grad(loss)(twin.params, batch), twin.opt, twin.params)
    params = optax.apply_updates(twin.params, updates)
    return Twin(params if project is None else project(params), opt)


def fresh_twin_gap(
    present: Tree,
    new: Sequence[Tree],
    loss: Loss,
    optimiser: optax.GradientTransformation,
    batches: Iterable[Tree],
    held_out: Sequence[Tree],
) -> Gap:
    """The gap of a network of your own.

    Args:
        present: its trained parameters.
        new: those of newly initialised networks of the same architecture, at least one.
        loss: (parameters, batch) -> the mean loss, against targets that do not depend on the parameters.
        optimiser: a new one of it is used for each network.
        batches: what each is trained on, an update for each, all of the same shape.
        held_out: what they are compared on.
    """
    step = jax.jit(lambda twin, batch: advance(twin, batch, loss, optimiser))
    judge = jax.jit(loss)
    twins = [begin(params, optimiser) for params in (present, *new)]
    for batch in batches:
        twins = [step(twin, batch) for twin in twins]
    own, *others = [[float(judge(twin.params, batch)) for batch in held_out] for twin in twins]
    return compare(own, others)
