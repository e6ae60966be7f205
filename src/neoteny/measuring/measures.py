"""The measures that are computed of a network at every probe, by name. To add one is a line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax import Array

from neoteny.networks import HiddenLayer, Path
from neoteny.plasticity.flax import Layer
from neoteny.plasticity.neurons import dormant_ratio, gradient_sparsity, grama_inactive_ratio
from neoteny.plasticity.norms import effective_learning_rate, l1_norm, l1_per_parameter, l2_norm, weight_norm
from neoteny.remedies.recycling import scores_by_activity, scores_by_gradient

Tree = Any
TAU = 0.01
"""At most this GraMa score is inactive, as for ReGraMa."""


class Passed(NamedTuple):
    """What passed through a network on a batch, forward and back, under its training loss."""

    params: Tree
    """Its trained parameters."""
    gradients: Tree
    """Of the mean loss."""
    layers: dict[Path, Layer]
    """Inputs, pre-activations and deltas of every layer, by path."""
    hidden: Sequence[HiddenLayer]
    """Its layers of hidden units; none of a user's own network."""


Measure = Callable[[Passed], Array | dict[str, Array]]
"""One number, or one for each of several names, which come after the measure's own and a slash."""

MEASURES: dict[str, Measure] = {
    "gradient_sparsity": lambda passed: gradient_sparsity(passed.gradients),
    "gradient_l1": lambda passed: l1_norm(passed.gradients),
    "gradient_l1_per_parameter": lambda passed: l1_per_parameter(passed.gradients),
    "gradient_l2": lambda passed: l2_norm(passed.gradients),
    "weight_norm": lambda passed: weight_norm(passed.params),
    "effective_lr": lambda passed: effective_learning_rate({"params": passed.gradients}, {"params": passed.params}),
}
"""Of every network."""

MEASURES_OF_UNITS: dict[str, Measure] = {
    "grama_inactive": lambda passed: grama_inactive_ratio(_by_gradient(passed), TAU),
    "dormant_0.1": lambda passed: dormant_ratio(_by_activity(passed), 0.1),
    "dormant_0.025": lambda passed: dormant_ratio(_by_activity(passed), 0.025),
}
"""Of networks whose hidden units are known."""


def measure(passed: Passed) -> dict[str, Array]:
    """Every measure of a network, by name; can be compiled."""
    values: dict[str, Array] = {}
    for name, function in {**MEASURES, **(MEASURES_OF_UNITS if passed.hidden else {})}.items():
        value = function(passed)
        values |= {f"{name}/{part}": one for part, one in value.items()} if isinstance(value, dict) else {name: value}
    return values


def _by_gradient(passed: Passed) -> list[Array]:
    return list(scores_by_gradient(passed.layers, passed.hidden).values())


def _by_activity(passed: Passed) -> list[Array]:
    return list(scores_by_activity(passed.layers, passed.hidden).values())
