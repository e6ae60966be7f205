"""Callbacks for SB3 that restore plasticity while an agent trains, one for each remedy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from neoteny.integrations.sb3.callbacks import PlasticityCallback, is_sbx
from neoteny.integrations.sb3.injection import check, inject, is_injected
from neoteny.integrations.sb3.passes import Pass, hidden_of
from neoteny.plasticity.neurons import dormant_score, grama_score
from neoteny.remedies.torch import Masks, forget, fresh, recycle, reset, shrink_perturb


class _Remedy(BaseCallback):
    """Changes networks every so many updates; in torch, so for SB3's own agents."""

    restarts = True
    """Whether Adam counts its steps anew afterwards: yes after surgery on whole layers."""

    def __init__(self, every: int) -> None:
        super().__init__()
        if every < 1:
            raise ValueError(f"{type(self).__name__}: every counts updates and must be >= 1, got {every}")
        self.every = every
        self.last = 0

    def _on_training_start(self) -> None:
        if is_sbx(self.model):
            raise TypeError(
                f"{type(self).__name__} changes torch networks, and {type(self.model).__name__} of SBX has Flax's: "
                "neoteny.remedies changes those"
            )
        if not hasattr(self.model, "q_net") and not hasattr(self.model, "critic"):
            raise TypeError(
                f"{type(self).__name__} changes actors and critics, and {type(self.model).__name__} has none of its "
                "own: SAC, TD3, DDPG and DQN have them"
            )
        self.last = self.model._n_updates

    def _on_step(self) -> bool:
        before, self.last = self.last, self.model._n_updates
        if self._is_due(before, self.last):
            self.act()
        return True

    def _is_due(self, before: int, now: int) -> bool:
        """Whether its moment came while the number of updates went from `before` to `now`."""
        return now // self.every > before // self.every

    def act(self) -> None:
        """Change every network now."""
        for name, network, target, optimizer in self._networks():
            change = self._change(name, network)
            forget(optimizer, network, change(network), self.restarts)
            if target is not None:
                change(target)

    def _networks(self) -> list[tuple[str, Any, Any, Any]]:
        """Each network with its target and its optimiser."""
        model: Any = self.model
        if hasattr(model, "q_net"):
            return [("critic", model.q_net, model.q_net_target, model.policy.optimizer)]
        return [
            ("critic", model.critic, model.critic_target, model.critic.optimizer),
            ("actor", model.actor, getattr(model, "actor_target", None), model.actor.optimizer),
        ]

    def _change(self, name: str, network: Any) -> Callable[[Any], Masks]:
        """What is to be done to `network`, and by the same draw to its target; it gives what it changed."""
        raise NotImplementedError


class ShrinkPerturbCallback(_Remedy):
    """theta <- keep theta + (1 - keep) theta_fresh, every so many updates; Ash & Adams (2020)."""

    def __init__(self, every: int = 100_000, keep: float = 0.8) -> None:
        super().__init__(every)
        if not 0 <= keep <= 1:
            raise ValueError(f"ShrinkPerturbCallback: keep must be in 0..1, got {keep}")
        self.keep = keep

    def _change(self, name: str, network: Any) -> Callable[[Any], Masks]:
        return partial(shrink_perturb, new=fresh(network), keep=self.keep)


class ResetCallback(_Remedy):
    """New weights for every layer, every so many updates; Nikishin et al. (2022)."""

    def __init__(self, every: int = 200_000) -> None:
        super().__init__(every)

    def _change(self, name: str, network: Any) -> Callable[[Any], Masks]:
        return partial(reset, new=fresh(network))


class _Recycling(_Remedy):
    """Gives units with a low score new weights in, and none out."""

    restarts = False

    def __init__(self, every: int, tau: float, samples: int) -> None:
        super().__init__(every)
        if tau < 0 or samples < 1:
            raise ValueError(f"{type(self).__name__}: tau must be >= 0 and samples >= 1, got {tau} and {samples}")
        self.tau = tau
        self.probe = PlasticityCallback(samples=samples)

    def _on_training_start(self) -> None:
        super()._on_training_start()
        self.probe.init_callback(self.model)

    def _networks(self) -> list[tuple[str, Any, Any, Any]]:
        buffer: Any = self.model.replay_buffer  # type: ignore[attr-defined]
        rng = np.random.default_rng(self.last)
        self.passes = self.probe._passes(buffer, rng.integers(0, buffer.size(), self.probe.samples))
        return super()._networks()

    def _change(self, name: str, network: Any) -> Callable[[Any], Masks]:
        scores = self._scores(self.passes[name])
        return partial(recycle, new=fresh(network), hidden=hidden_of(network), scores=scores, tau=self.tau)

    def _scores(self, passed: Pass) -> dict[str, Any]:
        """The score of every unit, by its layer."""
        raise NotImplementedError


class ReDoCallback(_Recycling):
    """Units whose dormancy score is at most tau: new weights in, none out; Sokar et al. (2023)."""

    def __init__(self, every: int = 1_000, tau: float = 0.025, samples: int = 256) -> None:
        super().__init__(every, tau, samples)

    def _scores(self, passed: Pass) -> dict[str, Any]:
        return {layer: dormant_score(values) for layer, values in passed.activations.items()}


class ReGraMaCallback(_Recycling):
    """Units whose GraMa score, by the gradient of the agent's own loss, is at most tau: the same; Liu et al. (2025)."""

    def __init__(self, every: int = 1_000, tau: float = 0.01, samples: int = 256) -> None:
        super().__init__(every, tau, samples)

    def _scores(self, passed: Pass) -> dict[str, Any]:
        return {layer: grama_score(deltas) for layer, deltas in passed.deltas.items()}


class InjectionCallback(_Remedy):
    """Plasticity injection (Nikishin et al. 2023), once, after `at` updates: see `neoteny.integrations.sb3.injection`.

    The networks have other parts from then on, which SB3's ``load`` does not make. To load what was saved after an
    injection, make the agent anew, ``callback.init_callback(model)``, ``callback.act()``, and then
    ``model.set_parameters(path)``.
    """

    def __init__(self, at: int) -> None:
        super().__init__(at)

    def _on_training_start(self) -> None:
        super()._on_training_start()
        networks = [network for _, network, _, _ in self._networks()]
        if any(is_injected(network) for network in networks):
            return
        if self.last >= self.every:
            raise ValueError(
                f"InjectionCallback: at={self.every} updates have passed, this agent has made {self.last}: give more"
            )
        for network in networks:
            check(network)

    def _is_due(self, before: int, now: int) -> bool:
        return before < self.every <= now

    def _change(self, name: str, network: Any) -> Callable[[Any], Masks]:
        if is_injected(network):
            raise ValueError("plasticity was injected already: it is done once")
        return partial(inject, new=fresh(network))
