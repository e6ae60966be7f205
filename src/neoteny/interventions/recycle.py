"""Recycling units that no longer learn: ReGraMa by their gradient, ReDo by their activity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array

from neoteny.interventions.surgery import masks, recycled
from neoteny.networks import Hidden, Path
from neoteny.plasticity.flax import Layer, activations
from neoteny.plasticity.neurons import dormant_score, grama_score

Tree = Any


def scores_by_gradient(layers: dict[Path, Layer], hidden: Sequence[Hidden]) -> dict[Path, Array]:
    """The GraMa score of every hidden unit; `layers` collected with the training loss."""
    return {layer.incoming: grama_score(layers[layer.incoming].deltas) for layer in hidden}


def scores_by_activity(layers: dict[Path, Layer], hidden: Sequence[Hidden]) -> dict[Path, Array]:
    """The dormancy score of every hidden unit."""
    found = {}
    for layer in hidden:
        found[layer.incoming] = dormant_score(activations(layers, layer.incoming, layer.outgoing[0]))
    return found


def recycle(
    params: Tree, fresh: Tree, scores: dict[Path, Array], tau: float, hidden: Sequence[Hidden]
) -> tuple[Tree, Tree]:
    """Units with a score <= tau: new weights into them, none out of them; and which parameters were changed.

    ReDo (Sokar et al. 2023), Algorithm 1; ReGraMa (SWD, ICLR 2026, Figure 8) with the gradient's score. Heads have no
    hidden units, so they only lose what they read of recycled ones. Adam's moments of what was changed go to 0
    and its count of steps goes on, as in Dopamine's ReDo: `surgery.cleared`.
    """
    flagged = {path: score <= tau for path, score in scores.items()}
    into, out = masks(params, flagged, hidden)
    changed = jax.tree.map(lambda comes_in, goes_out: comes_in | goes_out, into, out)
    return recycled(params, fresh, into, out), changed
