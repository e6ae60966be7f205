"""The fresh-twin gap of the critic of SB3's SAC, TD3, DDPG and DQN, in torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3 import DQN
from torch import Tensor, nn

from neoteny.integrations.sb3.injection import is_injected
from neoteny.integrations.sb3.passes import critic_losses, targets_of, values_of
from neoteny.plasticity.fresh_twin import NEW_NETWORKS, UPDATES, Gap, Units, draw, units_of
from neoteny.plasticity.torch_twin import fresh_twin_gap, in_units
from neoteny.remedies.torch import fresh, reset


class _Batch(NamedTuple):
    samples: Any
    target: Tensor


def gap_of(
    model: Any, samples: Callable[[Any], Any], num_stored: int, batch_size: int, seed: int, num_updates: int = UPDATES
) -> Gap:
    """The gap of the critic of `model`, by the loss and the optimiser that it is trained with, without clipping.

    Targets are by the networks of `model` as they are, which do not follow the twins; as in `neoteny.measuring`, all
    twins learn in units of the targets. Nothing is drawn from torch's own generator, and `model` is not changed.

    Args:
        model: SB3's SAC, TD3, DDPG or DQN.
        samples: slots of its replay, (batch_size,) -> its samples.
        num_stored: slots that are filled, from 0 on.
        batch_size: of each update.
        seed: of all that is drawn.
        num_updates: of each twin.
    """
    present, optimiser = (
        (model.q_net, model.policy.optimizer)
        if isinstance(model, DQN)
        else (
            model.critic,
            model.critic.optimizer,
        )
    )
    held, training = draw(np.random.default_rng([seed, 6]), num_stored, num_updates, batch_size)
    mode = model.policy.training
    model.policy.set_training_mode(False)
    with torch.random.fork_rng():
        torch.manual_seed(seed)

        def batch_at(slots: Any) -> _Batch:
            drawn = samples(slots)
            with torch.no_grad():
                return _Batch(drawn, targets_of(model, drawn))

        held_out = [batch_at(slots) for slots in held]
        twin, new = _copied(present), [_copied(present) for _ in range(NEW_NETWORKS)]
        for module in new:
            reset(module, fresh(module))
        units = Units(1.0, 0.0)
        if not is_injected(present):
            units = units_of(torch.cat([batch.target for batch in held_out]).cpu().numpy())
            for module in (twin, *new):
                in_units(heads_of(module), Units(units.scale, _mean_value(model, module, held_out)))

        def loss(module: nn.Module, batch: _Batch) -> Tensor:
            values = values_of(model, module, batch.samples)
            if isinstance(values, tuple):
                values = tuple(one * units.scale + units.shift for one in values)
            else:
                values = values * units.scale + units.shift
            return critic_losses(model, values, batch.samples, batch.target).mean()

        def new_optimiser(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
            settings = {**optimiser.defaults, "lr": optimiser.param_groups[0]["lr"]}
            return type(optimiser)(parameters, **settings)

        gap = fresh_twin_gap(twin, new, loss, new_optimiser, (batch_at(slots) for slots in training), held_out)
    model.policy.set_training_mode(mode)
    return gap


@torch.no_grad()
def _mean_value(model: Any, critic: nn.Module, batches: list[_Batch]) -> float:
    """The mean value of the stored actions."""
    means = []
    for drawn, _ in batches:
        values = values_of(model, critic, drawn)
        taken = torch.cat(values) if isinstance(values, tuple) else values.gather(1, drawn.actions.long())
        means.append(float(taken.mean()))
    return float(np.mean(means))


def heads_of(critic: nn.Module) -> list[nn.Linear]:
    """The last layer of each critic, by the order in which SB3 keeps them."""
    last: dict[str, nn.Linear] = {}
    for name, layer in critic.named_modules():
        if isinstance(layer, nn.Linear) and not name.startswith("features_extractor"):
            last[name.split(".")[0]] = layer
    return list(last.values())


def _copied(network: nn.Module) -> nn.Module:
    """A copy without its optimiser, which SB3 keeps in it and which would be copied, too."""
    optimiser = network.__dict__.pop("optimizer", None)
    try:
        return copy.deepcopy(network)
    finally:
        if optimiser is not None:
            network.optimizer = optimiser
