"""What an agent is: pure functions over one state, and what all agents share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from neoteny.networks import Anatomy

Tree = Any


class Agent(NamedTuple):
    """An algorithm. All randomness is in the state, as plain uint32 keys: JAX makes an object of each typed key that a
    compiled function returns, which costs more than acting. `update` does all its updates in one call.

    init(key) -> state
    act(params, acting, obs, step) -> (actions, acting): explore; `acting` is state.acting, and what replaces it
    update(state, batch) -> (state, Report): `batch` a dict of arrays, leading axes (updates, batch_size)
    policy(params, obs) -> actions, without noise; `params` from policy_params(state)
    sample(params, obs, key) -> actions with the noise that the trained agent explores with
    networks: its trainable networks, by name, for whoever measures or changes them
    """

    init: Callable[[Array], Tree]
    act: Callable[[Tree, Tree, Array, Array], tuple[Array, Tree]]
    update: Callable[[Tree, dict[str, Array]], tuple[Tree, Report]]
    policy: Callable[[Tree, Array], Array]
    sample: Callable[[Tree, Array, Array], Array]
    policy_params: Callable[[Tree], Tree]
    networks: dict[str, Network]


@dataclass(frozen=True)
class Network:
    """A trainable network of an agent: where it is in the state, what it is made of, and what it is trained to do."""

    params: str
    targets: tuple[str, ...]
    optimiser: str
    anatomy: Anatomy
    init: Callable[[Array], Tree]
    """key -> new parameters."""
    forward: Callable[[Tree, Tree, dict[str, Array]], Tree]
    """(params, state, batch) -> its outputs."""
    loss: Callable[[Tree, Tree, dict[str, Array], Array], Array]
    """(outputs, state, batch, key) -> the loss of each transition, (batch,)."""
    value: Callable[[Tree, dict[str, Array]], Array]
    """(outputs, batch) -> what they say as numbers, (batch, values): Q at the stored action, or the mean action."""


class Report(NamedTuple):
    """What an update tells: the means of its metrics, and the absolute TD error of every transition."""

    metrics: dict[str, Array]
    errors: Array
    finite: Array | bool = True
    """Of each update, whether all its steps were taken: one with a loss or gradient that is not finite is not."""


@dataclass(frozen=True)
class Problem:
    """What an agent must know of its environment, and of the batches it will be given."""

    obs_shape: tuple[int, ...]
    pixels: bool
    num_actions: int
    action_low: NDArray[np.float32] | None
    action_high: NDArray[np.float32] | None
    total_timesteps: int

    def scale(self) -> tuple[Array, Array]:
        """Half the width of the action space, and its middle."""
        assert self.action_low is not None
        assert self.action_high is not None
        low, high = jnp.asarray(self.action_low), jnp.asarray(self.action_high)
        return (high - low) / 2.0, (high + low) / 2.0


def many_updates(
    once: Callable[[Tree, dict[str, Array]], tuple[Tree, Report]], unroll: bool = False
) -> Callable[[Tree, dict[str, Array]], tuple[Tree, Report]]:
    """One call that makes every update of a batch's leading axis, each with its own transitions.

    A scan; written out for convolutions, which XLA runs five times slower inside a loop on the CPU.
    """

    def update(state: Tree, batch: dict[str, Array]) -> tuple[Tree, Report]:
        count = next(iter(batch.values())).shape[0]
        if unroll or count == 1:
            reports = []
            for index in range(count):
                state, report = once(state, {name: value[index] for name, value in batch.items()})
                reports.append(report)
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *reports)
        else:
            state, stacked = jax.lax.scan(once, state, batch)
        made = stacked.finite.sum()
        means = {
            name: jnp.where(stacked.finite, value, 0.0).sum() / made  # NaN, if none was made
            for name, value in stacked.metrics.items()
        }
        return state, Report(means, stacked.errors, stacked.finite)

    return update


def step_if_finite(step: Callable[[Tree], Tree], state: Tree, loss: Array, grads: Tree) -> tuple[Tree, Array]:
    """`step(state)` if the loss and its gradients are finite, else the state as it was; and whether they were.

    The step is taken inside the condition, so that the state is still updated in place.
    """
    finite = jnp.isfinite(loss + sum(_total(leaf) for leaf in jax.tree.leaves(grads)))
    return jax.lax.cond(finite, step, lambda state: state, state), finite


def _total(leaf: Array) -> Array:
    """The sum of an array, which is finite only if every entry is; by a product, far faster on the CPU than a sum."""
    rows = leaf.reshape(-1, leaf.shape[-1]) if leaf.ndim > 1 else leaf.reshape(1, -1)
    return (jnp.ones(rows.shape[0]) @ rows).sum()


def td_target(batch: dict[str, Array], gamma: float, next_value: Array) -> Array:
    """r + discount (1 - terminated) V(s'); bootstraps through a truncation. Everything (batch,)."""
    discount = batch.get("discount", gamma)
    return batch["reward"] + discount * (1.0 - batch["terminated"]) * next_value


def weighted_mean(batch: dict[str, Array], values: Array) -> Array:
    """The mean of values (batch,), by the importance weights if the batch has them."""
    return (batch["weight"] * values).mean() if "weight" in batch else values.mean()


def polyak(target: Tree, params: Tree, tau: float) -> Tree:
    """target + tau (params - target)."""
    return jax.tree.map(lambda old, new: old + tau * (new - old), target, params)


def copied(tree: Tree) -> Tree:
    """A copy that shares no buffer: donated buffers must not alias."""
    return jax.tree.map(jnp.copy, tree)
