"""One gradient step, written once for every agent, and the places in it where a remedy may act.

An agent says what each of its networks minimises (`TrainableNetwork.loss`). A step is: the loss of each transition, its
weighted mean plus the remedies' penalties, the gradient, the optimiser, the remedies' changes after a step, the
network's own projection if it has one; and it is taken only if loss and gradient are finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from neoteny.agents.agent import NetworkState, TrainableNetwork, UpdateReport, copied
from neoteny.networks import Path

Tree = Any
OTHER = "other/"
"""What the names of a second batch's fields begin with, in a batch that has one."""


class Hidden(NamedTuple):
    """What passed through a layer of hidden units, samples first."""

    preactivations: Array
    """The output of the units' own layer."""
    activations: Array
    """What the first layer that reads the units is given."""


class Step(NamedTuple):
    """A gradient step as remedies see it."""

    network: TrainableNetwork
    own: NetworkState
    """The network before the step."""
    state: Tree
    """The agent's whole state before the step."""
    batch: dict[str, Array]
    other: dict[str, Array] | None
    """A second batch, drawn independently, if a remedy of the agent asks for one."""
    hidden: dict[Path, Hidden]
    """What passed through the network's hidden layers, by the path of each layer's own kernel."""
    losses: Array
    """The loss of each transition, (batch,), without penalties; to a penalty a constant."""
    loss: Array
    """The weighted mean of the losses; to a penalty a constant."""
    grads: Tree
    """Of loss and penalties for the trained parameters; None to a penalty."""
    penalties: dict[str, Array]
    """What each remedy's penalty added to the loss, by the remedy's name; empty to a penalty."""


@dataclass(frozen=True)
class Remedy:
    """What a remedy does, as optional pure functions; those that are None do nothing.

    Every function is for one network at a time and can be compiled. A tree called `params` is the collection of trained
    parameters, without Flax's outer "params". `memory` is what the remedy itself remembers of the network.
    """

    name: str
    memory: Callable[[TrainableNetwork, Tree, Array], Tree] | None = None
    """(network, params, key) -> its memory when the network is new."""
    penalty: Callable[[Tree, Tree, Tree, Step], Array] | None = None
    """(params, outputs, memory, step) -> what is added to the loss."""
    optimiser: Callable[[TrainableNetwork], optax.GradientTransformation] | None = None
    """network -> the optimiser that takes the place of its own."""
    second_batch: bool = False
    """Whether its penalty needs a second batch (`Step.other`)."""
    after_step: Callable[[NetworkState, Tree, Step], tuple[NetworkState, Tree]] | None = None
    """(network after the optimiser's step, memory, step) -> (network, memory): a projection, a change of the
    optimiser's state, or what is remembered."""
    surgery: Callable[[TrainableNetwork, NetworkState, Tree, dict[str, Array], Array], Surgery] | None = None
    """(network, its state, the agent's state, batch, key) -> what is changed at the remedy's moments."""
    surgery_of: Callable[[int], Callable[..., Surgery]] | None = None
    """turn -> the surgery that is done at its turn, from 0 on, if they differ; None if it is always `surgery`."""
    done: Callable[[int], int] = lambda updates: 0
    """updates -> how often surgery has been done once so many updates were made."""
    reshapes: bool = False
    """Whether surgery changes the shapes of the state, so that what follows is compiled once more."""
    renews: bool = False
    """Whether its surgery also renews what the agent trains beside its networks (`Agent.renew`)."""
    followed: Callable[[NetworkState, Tree, Tree], tuple[NetworkState, Tree]] | None = None
    """(network after somebody's surgery, memory, which parameters were changed) -> (network, memory)."""
    apply: Callable[..., Tree] | None = None
    """(module, variables, *inputs) -> outputs, of a network to whose variables surgery has added a collection of
    constants that is called like the remedy."""


class Surgery(NamedTuple):
    """What surgery made of a network, and which of its trained parameters were changed: booleans of their shapes."""

    own: NetworkState
    changed: Tree


class Learner:
    """The gradient step of an agent under these remedies."""

    def __init__(self, remedies: Sequence[Remedy] = ()) -> None:
        self._remedies = tuple(remedies)

    def apply(self, module: Any, variables: Tree, *inputs: Array) -> Any:
        """The output of a Flax module; if a remedy has added constants to its variables, as that remedy computes it."""
        for remedy in self._remedies:
            if remedy.apply is not None and remedy.name in variables:
                return remedy.apply(module, variables, *inputs)
        return module.apply(variables, *inputs)

    def begin(self, network: TrainableNetwork, key: Array) -> NetworkState:
        """A new network, with the optimiser's state and the remedies' memory at their beginning."""
        variables = network.init(key)
        params = variables["params"]
        memory = {
            remedy.name: copied(remedy.memory(network, params, jax.random.fold_in(key, index)))
            for index, remedy in enumerate(self._remedies)
            if remedy.memory is not None
        }
        target = copied(variables) if network.has_target else None
        return NetworkState(variables, target, self.optimiser(network).init(params), memory)

    def optimiser(self, network: TrainableNetwork) -> optax.GradientTransformation:
        """The network's own optimiser, or that of the remedy which replaces it."""
        replacing = [remedy.optimiser for remedy in self._remedies if remedy.optimiser is not None]
        return replacing[0](network) if replacing else network.optimiser

    def step(
        self,
        network: TrainableNetwork,
        state: Tree,
        batch: dict[str, Array],
        key: Array,
        then: Callable[[Tree, Array, dict[str, Array]], Tree] = lambda state, loss, told: state,
    ) -> tuple[Tree, Array, dict[str, Array], Array]:
        """One gradient step of one network.

        Args:
            network: the network that learns.
            state: the agent's state.
            batch: transitions, by field.
            key: the randomness of the loss.
            then: (state, loss, told) -> state, what else the agent changes if the step is taken.

        Returns:
            the state, the loss without penalties, what the loss told, and whether the step was taken: only if loss and
            gradient are finite.
        """
        own: NetworkState = getattr(state, network.name)
        other = {name.removeprefix(OTHER): value for name, value in batch.items() if name.startswith(OTHER)}
        batch = {name: value for name, value in batch.items() if not name.startswith(OTHER)}
        before = Step(network, own, state, batch, other or None, {}, jnp.zeros(()), jnp.zeros(()), None, {})

        def objective(params: Tree) -> tuple[Array, tuple[Any, ...]]:
            outputs, hidden = forward_and_hidden(network, {**own.params, "params": params}, state, batch)
            losses, told = network.loss(outputs, state, batch, key)
            loss = (batch["weight"] * losses).mean() if network.weighted and "weight" in batch else losses.mean()
            constants = jax.lax.stop_gradient((losses, loss))
            seen = before._replace(hidden=hidden, losses=constants[0], loss=constants[1])
            penalties = {
                remedy.name: remedy.penalty(params, outputs, own.memory.get(remedy.name), seen)
                for remedy in self._remedies
                if remedy.penalty is not None
            }
            return sum(penalties.values(), loss), (loss, losses, hidden, penalties, told)

        (total, aux), grads = jax.value_and_grad(objective, has_aux=True)(own.params["params"])
        loss, losses, hidden, penalties, told = aux

        def taken(state: Tree) -> Tree:
            seen = before._replace(
                state=state, hidden=hidden, losses=losses, loss=loss, grads=grads, penalties=penalties
            )
            updates, opt = self.optimiser(network).update(grads, own.opt, own.params["params"])
            params = optax.apply_updates(own.params["params"], updates)
            new = replace(own, params={**own.params, "params": params}, opt=opt)
            for remedy in self._remedies:
                if remedy.after_step is not None:
                    new, memory = remedy.after_step(new, own.memory.get(remedy.name), seen)
                    new = remembering(new, remedy, memory)
            new = projected(network, new)
            return then(replace(state, **{network.name: new}), loss, told)

        # The step is taken inside the condition, so that the state is still updated in place.
        finite = jnp.isfinite(total + sum(_total(leaf) for leaf in jax.tree.leaves(grads)))
        return jax.lax.cond(finite, taken, lambda state: state, state), loss, told, finite


def many_updates(
    once: Callable[[Tree, dict[str, Array]], tuple[Tree, UpdateReport]], unroll: bool = False
) -> Callable[[Tree, dict[str, Array]], tuple[Tree, UpdateReport]]:
    """One call that makes every update of a batch's leading axis, each with its own transitions.

    A scan; written out for convolutions, which XLA runs five times slower inside a loop on the CPU.
    """

    def update(state: Tree, batch: dict[str, Array]) -> tuple[Tree, UpdateReport]:
        count = next(iter(batch.values())).shape[0]
        if unroll or count == 1:
            reports = []
            for index in range(count):
                state, report = once(state, {name: value[index] for name, value in batch.items()})
                reports.append(report)
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *reports)
        else:
            state, stacked = jax.lax.scan(once, state, batch)
        num_finite = stacked.finite.sum()
        means = {
            name: jnp.where(stacked.finite, value, 0.0).sum() / num_finite  # NaN, if none was made
            for name, value in stacked.metrics.items()
        }
        return state, UpdateReport(means, stacked.errors, stacked.finite)

    return update


def forward_and_hidden(
    network: TrainableNetwork, variables: Tree, state: Tree, batch: dict[str, Array]
) -> tuple[Tree, dict[Path, Hidden]]:
    """The outputs of a network, and what passed through its hidden layers.

    A layer that is called again with other parameters than the first time, such as a frozen copy, counts once.
    """
    preactivations: dict[Path, Array] = {}
    inputs: dict[Path, Array] = {}

    def watch(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        out = call(*args, **kwargs)
        if context.method_name == "__call__" and args:
            preactivations.setdefault(context.module.path, out)
            inputs.setdefault(context.module.path, args[0])
        return out

    with nn.intercept_methods(watch):
        outputs = network.forward(variables, state, batch)
    return outputs, {
        layer.incoming: Hidden(preactivations[layer.incoming], inputs[layer.outgoing[0]])
        for layer in network.anatomy.hidden
    }


def projected(network: TrainableNetwork, own: NetworkState) -> NetworkState:
    """A network whose trained parameters keep to its constraint, if it has one."""
    if network.project is None:
        return own
    return replace(own, params={**own.params, "params": network.project(own.params["params"])})


def remembering(own: NetworkState, remedy: Remedy, memory: Tree) -> NetworkState:
    """A network with this memory of a remedy, if the remedy has one."""
    return own if remedy.memory is None else replace(own, memory={**own.memory, remedy.name: memory})


def _total(leaf: Array) -> Array:
    """The sum of an array, which is finite only if every entry is; by a product, far faster on the CPU than a sum."""
    rows = leaf.reshape(-1, leaf.shape[-1]) if leaf.ndim > 1 else leaf.reshape(1, -1)
    return (jnp.ones(rows.shape[0]) @ rows).sum()
