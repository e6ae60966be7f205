"""Recycling units: what ReDo (by activity), ReGraMa (by gradient) and continual backprop (by utility) share.

A unit whose score is at most tau gets new weights into it and zero weights out of it, so that the network's output
stays the same if the unit was silent. Adam's moments of what was changed go to 0 and its count of steps goes on, as in
Dopamine's ReDo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax import Array

from neoteny.agents.agent import NetworkState, TrainableNetwork
from neoteny.agents.learner import Surgery
from neoteny.networks import HiddenLayer, Path
from neoteny.plasticity.flax import Layer, activations
from neoteny.plasticity.neurons import dormant_score, grama_score
from neoteny.remedies.surgery import change, losses_of, masks, recycled

Tree = Any
Scores = Callable[[dict[Path, Layer], Sequence[HiddenLayer]], dict[Path, Array]]


def scores_by_gradient(layers: dict[Path, Layer], hidden: Sequence[HiddenLayer]) -> dict[Path, Array]:
    """The GraMa score of every hidden unit; `layers` collected with the training loss."""
    return {layer.incoming: grama_score(layers[layer.incoming].deltas) for layer in hidden}


def scores_by_activity(layers: dict[Path, Layer], hidden: Sequence[HiddenLayer]) -> dict[Path, Array]:
    """The dormancy score of every hidden unit."""
    return {layer.incoming: dormant_score(activations(layers, layer.incoming, layer.outgoing[0])) for layer in hidden}


def recycle(
    params: Tree, fresh: Tree, scores: dict[Path, Array], tau: float, hidden: Sequence[HiddenLayer]
) -> tuple[Tree, Tree]:
    """Units with a score <= tau: new weights into them, none out of them; and which parameters were changed."""
    return renew_units(params, fresh, {path: score <= tau for path, score in scores.items()}, hidden)


def renew_units(
    params: Tree, fresh: Tree, flagged: Mapping[Path, Array], hidden: Sequence[HiddenLayer]
) -> tuple[Tree, Tree]:
    """Flagged units: new weights into them, none out of them; and which parameters were changed.

    Heads have no hidden units, so they only lose what they read of renewed ones.
    """
    into, out = masks(params, flagged, hidden)
    changed = jax.tree.map(lambda comes_in, goes_out: comes_in | goes_out, into, out)
    return recycled(params, fresh, into, out), changed


def recycling(score: Scores, tau: float) -> Any:
    """The surgery that recycles units whose score is at most `tau`."""

    def surgery(
        network: TrainableNetwork, own: NetworkState, state: Tree, batch: dict[str, Array], key: Array
    ) -> Surgery:
        loss_key, fresh_key = jax.random.split(key)
        hidden = network.anatomy.hidden
        scores = score(losses_of(state, network, batch, loss_key).layers, hidden)
        return change(
            network, own, fresh_key, lambda params, fresh: recycle(params, fresh, scores, tau, hidden), restart=False
        )

    return surgery
