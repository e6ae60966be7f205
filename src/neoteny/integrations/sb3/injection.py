"""Plasticity injection (Nikishin et al. 2023) into the networks of SB3's SAC, TD3, DDPG and DQN, in place.

The output becomes h + h1 - h2 from the last hidden layer to the heads, h1 = h2 new, so that it does not change at
first; only h1 is trained from then on. The layers of h1 are those that were there, with new weights: the optimiser goes
on to know them.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from neoteny.remedies.torch import Frozen, Masks


class Injected(nn.Module):
    """h + h1 - h2 of one input, or of three inputs side by side, one for each."""

    def __init__(self, trained: nn.Module, kept: nn.Module, taken: nn.Module, side_by_side: bool) -> None:
        super().__init__()
        self.trained = trained
        self.frozen = Frozen([kept, taken])
        self.side_by_side = side_by_side

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        trained, kept, taken = x.chunk(3, dim=-1) if self.side_by_side else (x, x, x)
        return self.trained(trained) + self.frozen[0](kept) - self.frozen[1](taken)


class Tripled(nn.Module):
    """h1, h and h2 of an input side by side, for the heads that read them."""

    def __init__(self, trained: nn.Module, kept: nn.Module, taken: nn.Module) -> None:
        super().__init__()
        self.trained = trained
        self.frozen = Frozen([kept, taken])

    def forward(self, x: Tensor) -> Tensor:
        """Return the three."""
        return torch.cat([self.trained(x), *(one(x) for one in self.frozen)], dim=-1)


def is_injected(network: nn.Module) -> bool:
    """Return whether plasticity was injected into a network."""
    return any(isinstance(module, Frozen) for module in network.modules())


def check(network: Any) -> None:
    """Refuse a network whose last hidden layer and heads are not known."""
    name = type(network).__name__
    if getattr(network, "use_sde", False):
        raise TypeError(
            f"plasticity cannot be injected into an {name} with use_sde=True: its noise reads the last layer"
        )
    for part in _sequences(network):
        if sum(isinstance(layer, nn.Linear) for layer in part) < (1 if _has_two_heads(network) else 2):
            raise TypeError(f"plasticity is injected from the last hidden layer on, and this {name} has none: {part}")


def inject(network: Any, new: dict[str, Tensor]) -> Masks:
    """Inject plasticity into an actor or critic of SB3's, and return which of its trained parameters are new.

    Args:
        network: changed in place.
        new: the new weights by name, those of `neoteny.remedies.torch.fresh` before the injection.
    """
    check(network)
    renewed: list[nn.Parameter] = []
    names = {layer: name for name, layer in network.named_modules()}

    def thrice(part: nn.Module) -> tuple[nn.Module, nn.Module, nn.Module]:
        """The part itself with new weights, what it was, and a copy of what it is now; the last two frozen."""
        kept = copy.deepcopy(part)
        with torch.no_grad():
            for layer in part.modules():
                for own, parameter in layer.named_parameters(recurse=False):
                    parameter.copy_(new[f"{names[layer]}.{own}"].to(parameter.device))
                    renewed.append(parameter)
        return part, kept, copy.deepcopy(part)

    two_heads = _has_two_heads(network)
    for part in _sequences(network):
        linear = [index for index, layer in enumerate(part) if isinstance(layer, nn.Linear)]
        begin, end = (linear[-1], len(part)) if two_heads else (linear[-2], linear[-1] + 1)
        tail = nn.Sequential(*list(part)[begin:end])
        parts = thrice(tail)
        del part[begin:end]
        part.insert(begin, Tripled(*parts) if two_heads else Injected(*parts, side_by_side=False))
    if two_heads:
        for head in ("mu", "log_std"):
            setattr(network, head, Injected(*thrice(getattr(network, head)), side_by_side=True))
    return {
        name: torch.ones_like(parameter, dtype=torch.bool)
        for name, parameter in network.named_parameters()
        if any(parameter is one for one in renewed)
    }


def _has_two_heads(network: Any) -> bool:
    """Whether it is an actor of SAC, whose mean and deviation read the last hidden layer."""
    return hasattr(network, "latent_pi")


def _sequences(network: Any) -> list[nn.Sequential]:
    """The parts of a network that end it, or that its two heads read."""
    if _has_two_heads(network):
        return [network.latent_pi]
    if hasattr(network, "q_networks"):
        return list(network.q_networks)
    return [network.q_net if hasattr(network, "q_net") else network.mu]
