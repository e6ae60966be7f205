"""Measuring the fresh-twin gap of an agent's critics on what its replay contains.

Both twins fit the agent's own loss of each transition against targets that are frozen at the moment of the
measurement: TD targets by the present target networks, the present actor and the present alpha, which do not follow
the twins. Transitions are drawn evenly from the whole replay, whatever its law; those of the held-out batches are in no
training batch. Noise in a target (of TD3's and SAC's next action) is drawn anew for each batch, the same for each twin.

A new network's outputs are near 0, and values are not: without more, the gap would say how long a new network takes to
reach the scale of the values. So all twins learn in units of the targets: outputs are multiplied by the targets'
spread and their mean is added. Each twin's head is divided by the spread, which leaves its function as it is, and its
own mean is taken off, so that all begin at the targets' mean. This is left out where outputs are no values
(distributional critics) and where dividing the head is not the same (SimBaV2, whose weights have norm 1, and after an
injection).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from neoteny.agents.agent import Agent, TrainableNetwork
from neoteny.machine.compiled import compiled
from neoteny.plasticity.flax_twin import Twin, advance, begin
from neoteny.plasticity.fresh_twin import LEAST, NEW_NETWORKS, UPDATES, Gap, Units, compare, draw, units_of
from neoteny.remedies.surgery import at, put
from neoteny.runs.session import Session

Tree = Any
AT_ONCE = 100
"""Updates in one compiled call; 1 of convolutions, which are slow inside a loop."""


class FreshTwin:
    """The compiled measurement of one agent.

    All it draws is by generators of that moment alone, so that training draws the same with and without it, and a
    resumed run needs no state of it.
    """

    def __init__(
        self, agent: Agent, unpack: Callable[..., dict[str, Any]], seed: int, batch_size: int, pixels: bool
    ) -> None:
        self._networks = {name: network for name, network in agent.networks.items() if network.kind == "value"}
        self._unpack, self._seed, self._size = unpack, seed, batch_size
        self._at_once = 1 if pixels else AT_ONCE
        self._begin = {name: compiled(partial(_begun, network)) for name, network in self._networks.items()}
        self._advance = {name: compiled(partial(self._updates, network)) for name, network in self._networks.items()}
        self._judge = {name: compiled(partial(self._judged, network)) for name, network in self._networks.items()}

    def measure(self, session: Session, updates: int) -> dict[str, float]:
        """The gap and both losses of each value network after `updates` updates, by name; none if little is stored."""
        measures: dict[str, float] = {}
        if len(session.buffer) < LEAST:
            return measures
        for name in self._networks:
            gap = self.gap(name, session, updates)
            measures |= {
                f"replay/{name}/fresh_twin_gap": gap.gap,
                f"replay/{name}/fresh_twin_loss": gap.present,
                f"replay/{name}/fresh_twin_new_loss": gap.new,
            }
        return measures

    def gap(self, name: str, session: Session, updates: int, num_updates: int = UPDATES, new: Any = None) -> Gap:
        """The gap of one network.

        Args:
            name: of the network.
            session: the agent's state, and the replay that is learned from; neither is changed.
            updates: how many the agent has made, which seeds what is drawn.
            num_updates: of each twin.
            new: variables of the networks to compare with, instead of newly initialised ones.
        """
        state, buffer, network = session.state, session.buffer, self._networks[name]
        key = jax.random.fold_in(jax.random.key(self._seed), 6)
        key = jax.random.fold_in(key, updates)
        held, training = draw(np.random.default_rng([self._seed, 6, updates]), len(buffer), num_updates, self._size)
        data_key, new_key = jax.random.split(key)
        keys = jax.random.split(new_key, NEW_NETWORKS)
        variables = [getattr(state, name).params, *(new or [network.init(one) for one in keys])]
        held_out = [self._gathered(buffer, positions[None]) for positions in held]
        units, own_units = self._units(name, variables, state, held_out, data_key)
        twins = [self._begin[name](own, each) for own, each in zip(variables, own_units, strict=True)]
        constants = [{part: tree for part, tree in own.items() if part != "params"} for own in variables]
        for first in range(0, num_updates, self._at_once):
            packed = self._gathered(buffer, training[first : first + self._at_once])
            twins = [
                self._advance[name](twin, own, units, state, *packed, data_key, first)
                for twin, own in zip(twins, constants, strict=True)
            ]
        judged = [
            [
                float(self._judge[name]({**own, "params": twin.params}, units, state, *packed, data_key, index)[0])
                for index, packed in enumerate(held_out, num_updates)
            ]
            for twin, own in zip(twins, constants, strict=True)
        ]
        return compare(judged[0], judged[1:])

    def _units(
        self, name: str, variables: list[Tree], state: Tree, held_out: list[Any], key: Array
    ) -> tuple[Units | None, list[Units | None]]:
        """What outputs are in, and what the head of each twin is divided by; None where that is not done."""
        nothing: list[Units | None] = [None] * len(variables)
        if not _has_units(self._networks[name], variables):
            return None, nothing
        told = [[self._judge[name](own, None, state, *packed, key, 0)[1] for packed in held_out] for own in variables]
        if "targets" not in told[0][0]:  # not a loss of values
            return None, nothing
        units = units_of(np.concatenate([np.asarray(one["targets"]) for one in told[0]]))
        return units, [Units(units.scale, float(np.mean([one["q"] for one in own]))) for own in told]

    def _gathered(self, buffer: Any, positions: NDArray[np.int64]) -> tuple[Any, dict[str, Any]]:
        """The transitions at these positions, (batches, batch_size), packed."""
        drawn = buffer.gather(positions.ravel())
        shape = positions.shape
        pixels = {name: value.reshape(*shape, *value.shape[1:]) for name, value in drawn.pixels.items()}
        return drawn.rows.reshape(*shape, -1), pixels

    def _updates(
        self,
        network: TrainableNetwork,
        twin: Twin,
        constants: Tree,
        units: Units | None,
        state: Tree,
        rows: Array,
        pixels: dict[str, Array],
        key: Array,
        first: Array,
    ) -> Twin:
        """The updates on these batches, of which the first is the `first` of all."""

        def loss(params: Tree, drawn: tuple[dict[str, Array], Array]) -> Array:
            batch, index = drawn
            return _losses(network, {**constants, "params": params}, units, state, batch, key, index)[0].mean()

        def once(twin: Twin, drawn: tuple[dict[str, Array], Array]) -> tuple[Twin, None]:
            return advance(twin, drawn, loss, network.optimiser, network.project), None

        batches, count = self._unpack(rows, pixels), len(rows)
        if count == 1:
            return once(twin, ({name: value[0] for name, value in batches.items()}, first))[0]
        return jax.lax.scan(once, twin, (batches, first + jnp.arange(count)))[0]

    def _judged(
        self,
        network: TrainableNetwork,
        variables: Tree,
        units: Units | None,
        state: Tree,
        rows: Array,
        pixels: dict[str, Array],
        key: Array,
        index: Array,
    ) -> tuple[Array, dict[str, Array]]:
        """The mean loss on one batch, and what it tells."""
        batch = {name: value[0] for name, value in self._unpack(rows, pixels).items()}
        losses, told = _losses(network, variables, units, state, batch, key, index)
        return losses.mean(), told


def _losses(
    network: TrainableNetwork,
    variables: Tree,
    units: Units | None,
    state: Tree,
    batch: dict[str, Array],
    key: Array,
    index: Array,
) -> tuple[Array, dict[str, Array]]:
    """The agent's own loss of each transition; the state, and with it the targets, is that of the moment."""
    outputs = network.forward(variables, state, batch)
    if units is not None:
        outputs = outputs * units.scale + units.shift
    return network.loss(outputs, state, batch, jax.random.fold_in(key, index))


def _begun(network: TrainableNetwork, variables: Tree, units: Units | None) -> Twin:
    """A twin before its first update, with its head in these units."""
    params = variables["params"]
    for path in network.anatomy.heads if units is not None else ():
        assert units is not None
        head = at(params, path)
        params = put(params, (*path, "kernel"), head["kernel"] / units.scale)
        bias = head["bias"] - units.shift
        params = put(params, (*path, "bias"), bias / units.scale)
    return begin(params, network.optimiser)


def _has_units(network: TrainableNetwork, variables: list[Tree]) -> bool:
    """Whether dividing a network's head divides its outputs."""
    plain = all(set(own) == {"params"} for own in variables) and network.project is None
    return plain and all(set(at(variables[0]["params"], path)) == {"kernel", "bias"} for path in network.anatomy.heads)
