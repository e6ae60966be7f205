"""The remedies on torch modules, in place: recycling, shrink and perturb, reset. No JAX."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_KINDS = (nn.Linear, nn.Conv2d, nn.LayerNorm)
Masks = dict[str, Tensor]
"""Of each parameter that was changed, by its name, which entries were."""


class HiddenModule(NamedTuple):
    """A layer of hidden units, by its name in a module, and the layers that read its units."""

    layer: str
    readers: tuple[str, ...]


class Frozen(nn.ModuleList):
    """Modules that are part of a network and constant: no optimiser and no remedy changes them."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        super().__init__(modules)
        self.requires_grad_(False)


def trained_modules(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Each module inside `module`, by its name, but those that are frozen."""
    frozen = {inner for outer in module.modules() if isinstance(outer, Frozen) for inner in outer.modules()}
    return ((name, inner) for name, inner in module.named_modules() if inner not in frozen)


def fresh(module: nn.Module) -> dict[str, Tensor]:
    """New parameters for every Linear, Conv2d and LayerNorm, by name, drawn as those draw their first."""
    drawn: dict[str, Tensor] = {}
    for name, layer in trained_modules(module):
        if isinstance(layer, _KINDS):
            new = copy.deepcopy(layer)
            new.reset_parameters()
            drawn |= {f"{name}.{part}": value.detach() for part, value in new.named_parameters()}
    return drawn


@torch.no_grad()
def recycle(
    module: nn.Module, new: Mapping[str, Tensor], hidden: Sequence[HiddenModule], scores: Mapping[str, Any], tau: float
) -> Masks:
    """Units with a score <= tau: new weights into them, none out of them; ReDo (Sokar et al. 2023), Algorithm 1.

    scores: of each hidden layer by its name, (units,): `dormant_score` for ReDo, `grama_score` for ReGraMa.
    """
    parameters = dict(module.named_parameters())
    changed = {name: torch.zeros_like(value, dtype=torch.bool) for name, value in parameters.items()}
    flagged = {unit.layer: torch.as_tensor(scores[unit.layer] <= tau) for unit in hidden}
    for layer, _ in hidden:  # all that comes in before anything goes out, so that what is cut stays cut
        for name in (f"{layer}.weight", f"{layer}.bias"):
            if name in parameters:
                units = flagged[layer].to(parameters[name].device)
                parameters[name][units] = new[name][units].to(parameters[name].device)
                changed[name][units] = True
    for layer, readers in hidden:
        for reader in readers:
            weight = parameters[f"{reader}.weight"]
            columns = columns_of(module.get_submodule(layer), module.get_submodule(reader), flagged[layer])
            weight[:, columns.to(weight.device)] = 0
            changed[f"{reader}.weight"][:, columns.to(weight.device)] = True
    return {name: mask for name, mask in changed.items() if mask.any()}


def columns_of(layer: nn.Module, reader: nn.Module, units: Tensor) -> Tensor:
    """Which inputs of `reader` come from these units of `layer`: a unit's channel, positions, or own column.

    A convolution that is read flat gives each unit as many columns as it has positions, channel by channel; a reader
    that reads more than this layer, such as a critic that reads features and then the action, has the rest last.
    """
    inputs: Any = reader.in_channels if isinstance(reader, nn.Conv2d) else reader.in_features
    flat = isinstance(layer, nn.Conv2d) and isinstance(reader, nn.Linear)
    spread = units.repeat_interleave(inputs // len(units)) if flat else units
    return torch.cat([spread, torch.zeros(inputs - len(spread), dtype=torch.bool)])


@torch.no_grad()
def shrink_perturb(module: nn.Module, new: Mapping[str, Tensor], keep: float) -> Masks:
    """theta <- keep theta + (1 - keep) theta_fresh, heads included, LayerNorm left; Ash & Adams (2020)."""
    return _mix(module, new, keep, (nn.Linear, nn.Conv2d))


@torch.no_grad()
def reset(module: nn.Module, new: Mapping[str, Tensor]) -> Masks:
    """New parameters for every layer; Nikishin et al. (2022)."""
    return _mix(module, new, 0.0, _KINDS)


def forget(optimizer: torch.optim.Optimizer, module: nn.Module, changed: Masks, restart: bool) -> None:
    """Adam's moments of what was changed go to 0, and with `restart` the count of steps of those parameters, too.

    torch counts the steps of each parameter. After a reset or shrink-perturb the count restarts, and the next steps are
    a new Adam's; with the old count they would be up to 3.2 x as large. Recycling keeps it, as Dopamine does.
    """
    parameters = dict(module.named_parameters())
    for name, mask in changed.items():
        state = optimizer.state.get(parameters[name], {})
        for moment in state.values():
            if isinstance(moment, Tensor) and moment.shape == mask.shape:  # not the count of steps
                moment[mask.to(moment.device)] = 0
        if "step" in state and restart:
            state["step"] = state["step"] * 0  # a number or a tensor, by torch's version and options


def _mix(module: nn.Module, new: Mapping[str, Tensor], keep: float, kinds: tuple[type[nn.Module], ...]) -> Masks:
    changed = {}
    for name, layer in trained_modules(module):
        if isinstance(layer, kinds):
            for part, value in layer.named_parameters():
                value.mul_(keep).add_(new[f"{name}.{part}"].to(value.device), alpha=1 - keep)
                changed[f"{name}.{part}"] = torch.ones_like(value, dtype=torch.bool)
    return changed
