"""What an agent is: pure functions over one state, and the contract of that state.

An agent's state is a frozen dataclass, registered with JAX, that contains

- under the name of each of `Agent.networks` a `NetworkState`: the parameters, what follows them, the optimiser's state
  and what the remedies remember. The learner, the remedies and the probes find a network there;
- `acting`: what acting changes (at least a key), which the training loop replaces after each step;
- whatever else the agent needs to go on. Random keys are plain uint32 arrays, and nothing else is uint32.

`check_state` refuses a state that does not keep to this. The state is donated to the compiled update, so no two of its
leaves may share a buffer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from neoteny.networks import Anatomy

Tree = Any


class Agent(NamedTuple):
    """An algorithm. All randomness is in the state, as plain uint32 keys: JAX makes an object of each typed key that a
    compiled function returns, which costs more than acting. `update` does all its updates in one call.

    init(key) -> state
    act(params, acting, obs, step) -> (actions, acting): explore; `acting` is state.acting, and what replaces it
    update(state, batch) -> (state, UpdateReport): `batch` a dict of arrays, leading axes (updates, batch_size)
    policy(params, obs) -> actions, without noise; `params` from policy_params(state)
    sample(params, obs, key) -> actions with the noise that the trained agent explores with
    networks: its trainable networks by name, for whoever measures or changes them
    renew(state) -> state in which what is trained beside the networks, such as SAC's alpha, is as in a new agent; None
        if nothing is
    observe(acting, reward, ended) -> acting after a step of the environments, of each its reward and whether its
        episode ended; None if the agent needs none of it
    """

    init: Callable[[Array], Tree]
    act: Callable[[Tree, Tree, Array, Array], tuple[Array, Tree]]
    update: Callable[[Tree, dict[str, Array]], tuple[Tree, UpdateReport]]
    policy: Callable[[Tree, Array], Array]
    sample: Callable[[Tree, Array, Array], Array]
    policy_params: Callable[[Tree], Tree]
    networks: dict[str, TrainableNetwork]
    renew: Callable[[Tree], Tree] | None = None
    observe: Callable[[Tree, Array, Array], Tree] | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NetworkState:
    """A trainable network in an agent's state."""

    params: Tree
    """Flax's variables: the collection "params" is trained; any other is constant."""
    target: Tree
    """Variables that follow `params`, or None."""
    opt: Tree
    """The optimiser's state, for the collection "params"."""
    memory: dict[str, Tree]
    """What remedies remember of this network, by the remedy's name."""


@dataclass(frozen=True)
class TrainableNetwork:
    """A trainable network of an agent: what it is made of, what it is trained to do, and by which optimiser."""

    name: str
    """The field of the agent's state that contains its `NetworkState`."""
    kind: Literal["policy", "value"]
    """What its outputs are: actions, or values of actions."""
    anatomy: Anatomy
    init: Callable[[Array], Tree]
    """key -> new variables."""
    optimiser: optax.GradientTransformation
    forward: Callable[[Tree, Tree, dict[str, Array]], Tree]
    """(variables, state, batch) -> its outputs."""
    loss: Callable[[Tree, Tree, dict[str, Array], Array], tuple[Array, dict[str, Array]]]
    """(outputs, state, batch, key) -> the loss of each transition, (batch,), and numbers worth reporting, by name."""
    value: Callable[[Tree, dict[str, Array]], Array]
    """(outputs, batch) -> what they say as numbers, (batch, values): Q at the stored action, or the mean action."""
    has_target: bool = True
    """Whether a target follows it."""
    learning_rate: float | None = None
    """The optimiser's, for remedies that replace it."""
    target_every: int | None = None
    """Updates in which its target, or that of what it learns from, is renewed: those between two copies, or 1 / tau."""
    acts: bool = False
    """Whether actions are chosen by it."""
    distance: Callable[[Tree, Tree], Array] | None = None
    """(outputs, earlier outputs) -> how far apart they are, (batch,): what its churn is measured by."""
    drift: Callable[[Tree, dict[str, Array], Array], Array] | None = None
    """(outputs, batch, step) -> how far each stored action is from what would be done at `step` of the run, (batch,).
    Of the network that acts."""
    project: Callable[[Tree], Tree] | None = None
    """trained parameters -> those that keep to its constraint, such as weights of norm 1; None if it has none. `init`
    keeps to it, and it is applied after every step and after surgery."""

    @property
    def weighted(self) -> bool:
        """Whether the loss is a mean by the batch's importance weights: of values, and not of a policy."""
        return self.kind == "value"


class UpdateReport(NamedTuple):
    """What an update tells: the means of its metrics, and the absolute TD error of every transition."""

    metrics: dict[str, Array]
    errors: Array
    finite: Array | bool = True
    """Of each update, whether all its steps were taken: one with a loss or gradient that is not finite is not."""


def check_state(state: Tree, networks: Mapping[str, TrainableNetwork]) -> None:
    """Raise TypeError if an agent's state, or its shapes, does not keep to the contract at the top of this file."""
    if not dataclasses.is_dataclass(state):
        raise TypeError(f"an agent's state must be a dataclass registered with JAX, got {type(state).__name__}")
    fields = {field.name for field in dataclasses.fields(state)}
    if "acting" not in fields:
        raise TypeError(f"an agent's state must have the field acting, got the fields {', '.join(sorted(fields))}")
    for name, network in networks.items():
        own = getattr(state, network.name, None)
        if name != network.name or not isinstance(own, NetworkState):
            raise TypeError(f"an agent's state must have a NetworkState in the field {name}, got {type(own).__name__}")
        if "params" not in own.params:
            raise TypeError(f"the variables of {name} must have the collection params, got {', '.join(own.params)}")
        if (own.target is not None) != network.has_target:
            raise TypeError(f"the state of {name} must have a target exactly if has_target is true")


def td_target(batch: dict[str, Array], gamma: float, next_value: Array) -> Array:
    """r + discount (1 - terminated) V(s'); bootstraps through a truncation. Everything (batch,)."""
    discount = batch.get("discount", gamma)
    return batch["reward"] + discount * (1.0 - batch["terminated"]) * next_value


def squared_errors(values: Array, target: Array) -> tuple[Array, dict[str, Array]]:
    """The loss of critics: the sum over critics of (Q(s, a) - y)^2 of each transition, and what `values_told` tells.

    It tells the targets, too: then the outputs are values, in the targets' units.

    Args:
        values: of each critic, (critics, batch).
        target: y, (batch,).
    """
    told = {**values_told(values, target), "targets": jax.lax.stop_gradient(target)}
    return ((values - target) ** 2).sum(axis=0), told


def values_told(values: Array, target: Array) -> dict[str, Array]:
    """What the loss of critics tells: the mean Q, the largest |Q|, the mean |y|, and each transition's mean |error|."""
    constants, wanted = jax.lax.stop_gradient((values, target))
    return {
        "q": values.mean(),
        "q_max": jnp.abs(constants).max(),
        "target_abs": jnp.abs(wanted).mean(),
        "errors": jnp.abs(values - target).mean(axis=0),
    }


def critics_metrics(loss: Array, told: dict[str, Array]) -> dict[str, Array]:
    """What every agent reports of a step of its critics: the loss, and what `values_told` told."""
    return {"critic_loss": loss, **{name: told[name] for name in ("q", "q_max", "target_abs")}}


def adam(learning_rate: float, weight_decay: float) -> optax.GradientTransformation:
    """Adam, or AdamW if weights decay."""
    return optax.adamw(learning_rate, weight_decay=weight_decay) if weight_decay else optax.adam(learning_rate)


def polyak(own: NetworkState, tau: float) -> NetworkState:
    """A network whose target moved: target + tau (params - target)."""
    target = jax.tree.map(lambda old, new: old + tau * (new - old), own.target, own.params)
    return dataclasses.replace(own, target=target)


def copied(tree: Tree) -> Tree:
    """A copy that shares no buffer: donated buffers must not alias."""
    return jax.tree.map(jnp.copy, tree)
