"""SB3's DQN, SAC and TD3 with prioritised replay: importance weights in the critics' loss, priorities from TD errors.

Their ``train`` is SB3's own, of the version that is installed, and not a copy of it. It computes the critics' loss by
``F.mse_loss`` or ``F.smooth_l1_loss``; here it runs with an ``F`` whose two losses are weighted means, and which tells
the buffer the errors.
"""

from __future__ import annotations

import warnings
from types import FunctionType
from typing import Any

import stable_baselines3
import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from torch.nn import functional

from neoteny.integrations.sb3.priorities import PrioritizedReplayBuffer


class WeightedLosses:
    """What SB3's ``train`` calls ``F``: the losses of `critics` critics, weighted by the last batch of `buffer`.

    When the last critic's loss of a batch is computed, the batch's priorities are set by the mean of the critics'
    |TD errors|, as in our own agents.
    """

    def __init__(self, buffer: PrioritizedReplayBuffer, critics: int) -> None:
        self._buffer, self._critics = buffer, critics
        self._errors: list[torch.Tensor] = []
        self.batches = 0
        """Batches whose losses were all computed."""

    def mse_loss(self, values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The weighted mean of (value - target)^2."""
        return self._weighted(values, targets, functional.mse_loss(values, targets, reduction="none"))

    def smooth_l1_loss(self, values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The weighted mean of Huber's loss."""
        return self._weighted(values, targets, functional.smooth_l1_loss(values, targets, reduction="none"))

    def __getattr__(self, name: str) -> Any:
        return getattr(functional, name)

    def _weighted(self, values: torch.Tensor, targets: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
        self._errors.append((values.detach() - targets).abs())
        if len(self._errors) == self._critics:
            errors = torch.stack(self._errors).mean(dim=0)
            self._buffer.update_priorities(errors.flatten().cpu().numpy())
            self._errors = []
            self.batches += 1
        return (losses * self._buffer.weights).mean()


class _Prioritized(OffPolicyAlgorithm):
    """What the three agents share."""

    def _setup_model(self) -> None:
        kind = self.replay_buffer_class
        if kind is None:
            self.replay_buffer_class = PrioritizedReplayBuffer
            if self.n_steps > 1:
                self.replay_buffer_kwargs = {**self.replay_buffer_kwargs, "n_steps": self.n_steps, "gamma": self.gamma}
        elif not issubclass(kind, PrioritizedReplayBuffer):
            raise TypeError(
                f"{type(self).__name__} needs replay_buffer_class=PrioritizedReplayBuffer, its default, "
                f"got {kind.__name__}; for replay without priorities use {_own(type(self)).__name__}"
            )
        with warnings.catch_warnings():
            if "n_steps" in self.replay_buffer_kwargs:  # SB3 warns that a buffer class of one's own has not been told
                warnings.filterwarnings("ignore", "`n_steps=")
            super()._setup_model()

    def train(self, *args: Any, **kwargs: Any) -> None:
        """SB3's own, with weighted losses."""
        buffer = self.replay_buffer
        if not isinstance(buffer, PrioritizedReplayBuffer):
            raise TypeError(
                f"{type(self).__name__} needs a PrioritizedReplayBuffer, and this replay buffer is a "
                f"{type(buffer).__name__}: convert it with PrioritizedReplayBuffer.from_buffer(model.replay_buffer)"
            )
        critics = self.critic.n_critics if hasattr(self, "critic") else 1
        losses, drawn = WeightedLosses(buffer, critics), buffer.batches_drawn
        own = _own(type(self)).train
        FunctionType(own.__code__, {**own.__globals__, "F": losses}, own.__name__, own.__defaults__)(
            self, *args, **kwargs
        )
        if losses.batches != buffer.batches_drawn - drawn:
            raise RuntimeError(
                f"{_own(type(self)).__name__}.train of Stable-Baselines3 {stable_baselines3.__version__} computed the "
                f"critics' losses of {losses.batches} batches by F.mse_loss or F.smooth_l1_loss and drew "
                f"{buffer.batches_drawn - drawn}, so priorities cannot be relied on: use version 2.9.2"
            )


def _own(kind: type[OffPolicyAlgorithm]) -> Any:
    """The agent of SB3's that `kind` is made of."""
    return next(base for base in kind.__mro__ if base.__module__.startswith("stable_baselines3."))


class PrioritizedDQN(_Prioritized, DQN):
    """SB3's DQN with prioritised replay: ``PrioritizedDQN("MlpPolicy", env, replay_buffer_kwargs={"alpha": 0.6})``.

    replay_buffer_kwargs: alpha, beta, beta_step and eps of prioritised replay; decay_steps and min_weight, or
    age_weight, multiply the priorities with age weights. Everything else is SB3's.
    """


class PrioritizedSAC(_Prioritized, SAC):
    """SB3's SAC with prioritised replay: the critics' loss is weighted. It takes what ``PrioritizedDQN`` takes."""


class PrioritizedTD3(_Prioritized, TD3):
    """SB3's TD3 with prioritised replay: the critics' loss is weighted. It takes what ``PrioritizedDQN`` takes."""
