"""Training the twins of the fresh-twin gap in torch; see `neoteny.plasticity.fresh_twin` for what it is. No JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from neoteny.plasticity.fresh_twin import Gap, Units, compare

Loss = Callable[[nn.Module, Any], Tensor]
"""(module, batch) -> the mean loss, against targets that do not depend on the module."""


def fresh_twin_gap(
    present: nn.Module,
    new: Sequence[nn.Module],
    loss: Loss,
    optimiser: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    batches: Iterable[Any],
    held_out: Sequence[Any],
) -> Gap:
    """The gap of a module. The modules are trained in place: give copies.

    Args:
        present: a copy of the present network.
        new: newly initialised networks of the same architecture, at least one.
        loss: (module, batch) -> the mean loss, against targets that do not depend on the module.
        optimiser: trained parameters -> a new optimiser.
        batches: what each is trained on, an update for each.
        held_out: what they are compared on.
    """
    modules = [present, *new]
    trained = [[value for value in module.parameters() if value.requires_grad] for module in modules]
    optimisers = [optimiser(parameters) for parameters in trained]
    for batch in batches:
        for module, parameters, own in zip(modules, trained, optimisers, strict=True):
            gradients = torch.autograd.grad(loss(module, batch), parameters)
            for value, gradient in zip(parameters, gradients, strict=True):
                value.grad = gradient
            own.step()
    with torch.no_grad():
        own_losses, *others = [[float(loss(module, batch)) for batch in held_out] for module in modules]
    return compare(own_losses, others)


@torch.no_grad()
def in_units(heads: Iterable[nn.Linear], units: Units) -> None:
    """Divide the last layers of a network, in place, so that its outputs x scale + shift are what they were."""
    for head in heads:
        head.weight.div_(units.scale)
        head.bias.sub_(units.shift).div_(units.scale)
