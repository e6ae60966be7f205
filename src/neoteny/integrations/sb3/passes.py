"""A pass through each network of SB3's SAC, TD3, DDPG and DQN, by the loss that it is trained with. In torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch
from stable_baselines3 import DQN, SAC, TD3
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from neoteny.plasticity.torch import Layer, collect
from neoteny.remedies.torch import HiddenModule, trained_modules


class Pass(NamedTuple):
    """What the measures of plasticity need of one network."""

    gradients: list[Any]
    """Of the mean loss."""
    deltas: dict[str, Any]
    """Of each hidden layer, (batch, ..., units)."""
    activations: dict[str, Any]


def check(model: Any) -> None:
    """Refuse an agent whose loss is not known here."""
    if not isinstance(model, (DQN, SAC, TD3)):  # DDPG is a TD3
        raise TypeError(f"no measures for {type(model).__name__}: SAC, TD3, DDPG and DQN of SB3 and SBX have them")


def passes(model: Any, batch: Any, seed: int) -> dict[str, Pass]:
    """Every network of `model` on `batch`. Nothing is drawn from torch's own generator, and no ``.grad`` is touched."""
    check(model)
    training = model.policy.training
    model.policy.set_training_mode(False)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        by_network = _passes(model, batch)
    model.policy.set_training_mode(training)
    return by_network


def hidden_of(module: nn.Module) -> list[HiddenModule]:
    """The hidden layers of an actor or critic of SB3's, and who reads them.

    SB3 keeps each part in a Sequential: those that read the features, and those that read another's last layer (SAC's
    mean and deviation). A feature extractor counts if it is SB3's CNN; another's layers need not follow each other.
    What an injection has frozen does not count.
    """
    parts: dict[str, list[str]] = {}
    for name, layer in trained_modules(module):
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            parts.setdefault(name.split(".")[0], []).append(name)
    features = parts.pop("features_extractor", [])
    if not hasattr(getattr(module, "features_extractor", None), "cnn"):
        features = []
    heads = [parts.pop(name)[0] for name in ("mu", "log_std") if name in parts] if "latent_pi" in parts else []
    hidden = [HiddenModule(one, (other,)) for part in (features, *parts.values()) for one, other in pairwise(part)]
    if features:
        hidden.append(HiddenModule(features[-1], tuple(part[0] for part in parts.values())))
    if heads:
        hidden.append(HiddenModule(parts["latent_pi"][-1], tuple(heads)))
    return hidden


def targets_of(model: Any, batch: Any) -> Tensor:
    """What the critic of `model` is to learn of each transition, (batch, 1); a constant."""
    if isinstance(model, DQN):
        return _target(model, batch, model.q_net_target(batch.next_observations).max(dim=1, keepdim=True).values)
    if isinstance(model, SAC):
        action, log_prob = model.actor.action_log_prob(batch.next_observations)
        after = _least(model.critic_target, batch.next_observations, action)
        return _target(model, batch, after - _alpha(model) * log_prob.reshape(-1, 1))
    noise = (torch.randn_like(batch.actions) * model.target_policy_noise).clamp(
        -model.target_noise_clip, model.target_noise_clip
    )
    action = (model.actor_target(batch.next_observations) + noise).clamp(-1, 1)
    return _target(model, batch, _least(model.critic_target, batch.next_observations, action))


def values_of(model: Any, critic: Any, batch: Any) -> Any:
    """What a critic like that of `model` gives: a value for each action, or a tuple with those of each critic."""
    return critic(batch.observations) if isinstance(model, DQN) else critic(batch.observations, batch.actions)


def critic_losses(model: Any, values: Any, batch: Any, target: Tensor) -> Tensor:
    """The loss of each transition by which `model` trains its critic, from what `values_of` gives, (batch,)."""
    if isinstance(model, DQN):
        return smooth_l1_loss(values.gather(1, batch.actions.long()), target, reduction="none")[:, 0]
    scale = 0.5 if isinstance(model, SAC) else 1.0
    return torch.stack([scale * (q - target)[:, 0] ** 2 for q in values]).sum(dim=0)


def _alpha(model: Any) -> Tensor:
    alpha: Tensor = model.ent_coef_tensor if model.log_ent_coef is None else model.log_ent_coef.detach().exp()
    return alpha


def _passes(model: Any, batch: Any) -> dict[str, Pass]:
    target, critic = targets_of(model, batch), model.q_net if isinstance(model, DQN) else model.critic
    by_network = {
        "critic": _pass(
            critic,
            lambda: values_of(model, critic, batch),
            lambda values: critic_losses(model, values, batch, target),
        )
    }
    if isinstance(model, DQN):
        return by_network

    def act() -> Any:
        if isinstance(model, SAC):
            return model.actor.action_log_prob(batch.observations)
        return model.actor(batch.observations), torch.zeros(1, device=model.device)

    def worth(acted: tuple[Tensor, Tensor]) -> Tensor:
        action, log_prob = acted
        if isinstance(model, SAC):
            return _alpha(model) * log_prob - _least(model.critic, batch.observations, action)[:, 0]
        return -model.critic.q1_forward(batch.observations, action)[:, 0]

    return {**by_network, "actor": _pass(model.actor, act, worth)}


def _least(critic: Any, obs: Any, action: Tensor) -> Tensor:
    return torch.cat(critic(obs, action), dim=1).min(dim=1, keepdim=True).values


def _target(model: Any, batch: Any, after: Tensor) -> Tensor:
    discounts = model.gamma if batch.discounts is None else batch.discounts
    return (batch.rewards + (1 - batch.dones) * discounts * after).detach()


def _pass(module: nn.Module, forward: Any, loss: Any) -> Pass:
    collected = collect(module, forward, loss)
    hidden = hidden_of(module)
    count = len(collected.values)
    return Pass(
        [gradient / count for gradient in collected.gradients.values()],
        {layer: collected.layers[layer].deltas for layer, _ in hidden},
        {layer: _read(collected.layers, layer, readers[0]) for layer, readers in hidden},
    )


def _read(layers: dict[str, Layer], layer: str, reader: str) -> Any:
    """What the units of `layer` give to `reader`, units last."""
    read, units = layers[reader].inputs, layers[layer].outputs.shape[-1]
    if layers[layer].outputs.ndim > read.ndim:  # a convolution that is read flat, channel by channel
        return read.reshape(len(read), units, -1).swapaxes(1, 2)
    return read[..., :units]  # a critic reads features, then the action
