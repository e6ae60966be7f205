"""A callback for SB3 and SBX that measures plasticity while an agent trains."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback

from neoteny.integrations.sb3.buffers import AgeWeightedReplayBuffer
from neoteny.integrations.sb3.fresh_twin import gap_of
from neoteny.integrations.sb3.passes import Pass, check, passes
from neoteny.plasticity.fresh_twin import LEAST
from neoteny.plasticity.neurons import dormant_ratio, dormant_score, grama_inactive_ratio, grama_score
from neoteny.plasticity.norms import l2_norm
from neoteny.replay.storage import slots_of


class PlasticityCallback(BaseCallback):
    """Logs how able to learn an agent's networks are: ``model.learn(100_000, callback=PlasticityCallback())``.

    Every `probe_freq` calls of the environment, once learning has begun, for each network, to SB3's own logger:
    ``plasticity/NETWORK/`` grama_inactive (share of hidden units with a GraMa score <= 0.01), dormant (dormancy score
    <= 0.1), gradient_l2, and fresh_gradient_share (the newest transitions' gradient times their share of a batch, over
    the batch's). SB3's SAC, TD3, DDPG and DQN in torch, without JAX; SBX's by Flax. Nothing is drawn from the
    generators of training: the run is the same as without it.

    Every `twin_freq` calls, if it is not 0, also ``plasticity/critic/fresh_twin_gap``, with both of its losses: a copy
    of the critic and two new ones are trained for 1,000 updates on the replay, and the loss that is left of the copy
    is divided by that of the new ones. SB3's own agents only.
    """

    def __init__(self, probe_freq: int = 1_000, samples: int = 256, twin_freq: int = 0) -> None:
        super().__init__()
        if probe_freq < 1 or samples < 1:
            raise ValueError(f"probe_freq and samples must be >= 1, got {probe_freq} and {samples}")
        if twin_freq < 0:
            raise ValueError(f"twin_freq must be >= 0, got {twin_freq}")
        self.probe_freq, self.samples, self.twin_freq = probe_freq, samples, twin_freq

    def _init_callback(self) -> None:
        """Refuse an agent that cannot be measured, before it is trained."""
        if is_sbx(self.model):
            from neoteny.integrations.sb3.sbx import check as check_flax

            check_flax(self.model)
            if self.twin_freq:
                raise TypeError(
                    f"twin_freq trains torch networks, and {type(self.model).__name__} of SBX has Flax's: leave it out"
                )
        else:
            check(self.model)

    def _on_step(self) -> bool:
        if self.n_calls % self.probe_freq == 0 and self.model._n_updates > 0:
            for name, value in self.measure().items():
                self.logger.record(f"plasticity/{name}", value)
        if self.twin_freq and self.n_calls % self.twin_freq == 0 and self.model._n_updates > 0:
            for name, value in self.measure_twin().items():
                self.logger.record(f"plasticity/{name}", value)
        return True

    def measure(self) -> dict[str, float]:
        """Every measure now, by network and name."""
        buffer: Any = self.model.replay_buffer  # type: ignore[attr-defined]
        rng = np.random.default_rng(self.n_calls)
        ages = isinstance(buffer, AgeWeightedReplayBuffer)
        held = buffer.num_ageing if ages else buffer.size()
        steps = min(-(-self.samples // buffer.n_envs), held)
        back = np.arange(steps)
        newest = buffer.slots_behind(back) if ages else slots_of(back, buffer.pos, buffer.buffer_size)
        drawn = buffer.slots(rng, self.samples) if ages else rng.integers(0, held, self.samples)
        mixed = fresh_alone = self._passes(buffer, drawn)
        share = 0.0  # while all that is held is pinned
        if steps:
            fresh_alone = self._passes(buffer, np.resize(newest, self.samples))
            share = buffer.share_of_newest(steps) if ages else steps / held
        measures: dict[str, float] = {}
        for network, passed in mixed.items():
            fresh_norm, norm = (float(l2_norm(one.gradients)) for one in (fresh_alone[network], passed))
            measures |= {f"{network}/{name}": value for name, value in _of_units(passed).items()}
            measures[f"{network}/gradient_l2"] = norm
            measures[f"{network}/fresh_gradient_share"] = share * fresh_norm / max(norm, 1e-30)
        return measures

    def measure_twin(self) -> dict[str, float]:
        """The fresh-twin gap of the critic now, and both of its losses; none while little is stored."""
        buffer: Any = self.model.replay_buffer  # type: ignore[attr-defined]
        if buffer.size() < LEAST:
            return {}
        batch_size: int = self.model.batch_size  # type: ignore[attr-defined]
        gap = gap_of(self.model, lambda slots: self._samples(buffer, slots), buffer.size(), batch_size, self.n_calls)
        return {
            "critic/fresh_twin_gap": gap.gap,
            "critic/fresh_twin_loss": gap.present,
            "critic/fresh_twin_new_loss": gap.new,
        }

    def _samples(self, buffer: ReplayBuffer, slots: Any) -> Any:
        state = np.random.get_state()  # noqa: NPY002 - which environment's transition of a slot SB3 draws from this
        batch = buffer._get_samples(slots, env=self.model.get_vec_normalize_env())
        np.random.set_state(state)  # noqa: NPY002
        return batch

    def _passes(self, buffer: ReplayBuffer, slots: Any) -> dict[str, Pass]:
        batch = self._samples(buffer, slots)
        if is_sbx(self.model):
            from neoteny.integrations.sb3.sbx import passes as flax_passes

            return flax_passes(self.model, batch, self.n_calls)
        return passes(self.model, batch, self.n_calls)


def _of_units(passed: Pass) -> dict[str, float]:
    if not passed.deltas:  # a policy without hidden layers
        return {}
    return {
        "grama_inactive": float(grama_inactive_ratio([grama_score(d) for d in passed.deltas.values()], 0.01)),
        "dormant": float(dormant_ratio([dormant_score(h) for h in passed.activations.values()], 0.1)),
    }


def is_sbx(model: Any) -> bool:
    """Whether this is an agent of SBX's, whose policy holds no torch parameters: its networks are Flax's."""
    return next(model.policy.parameters(), None) is None
