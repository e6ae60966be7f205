"""A policy that draws from a Gaussian, squashed by tanh into the bounds of the actions, as SAC has it."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

Outputs = tuple[Array, Array]
"""What the network gives: the mean before the tanh, and a raw log standard deviation, both (batch, actions)."""
EDGE = 1e-6
"""How near to a bound, over the action scale, actions are no longer told apart."""
NODES, SHARES = np.polynomial.hermite_e.hermegauss(32)
SHARES = SHARES / SHARES.sum()
"""Where a function of a standard normal is looked at for its mean, and the share of each place in it."""


@dataclass(frozen=True)
class SquashedGaussian:
    """tanh(mean + std noise) scale + middle, with log std kept between two bounds by a tanh of its own."""

    scale: NDArray[np.float32]
    middle: NDArray[np.float32]
    log_std_min: float
    log_std_max: float

    def mean(self, outputs: Outputs) -> Array:
        """Return the action without noise."""
        return jnp.tanh(outputs[0]) * self.scale + self.middle

    def draw(self, outputs: Outputs, key: Array) -> tuple[Array, Array]:
        """Return an action and its log density, (batch,): Gaussian, tanh, scale, with the change of variables."""
        mean, raw = outputs
        log_std = self._log_std(raw)
        noise = jax.random.normal(key, mean.shape)
        x = mean + jnp.exp(log_std) * noise
        log_prob = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi)
        log_prob -= self._log_slope(x)
        return jnp.tanh(x) * self.scale + self.middle, log_prob.sum(axis=-1)

    def divergence(self, outputs: Outputs, earlier: Outputs) -> Array:
        """Return KL(pi || pi') of the Gaussians before the tanh, (batch,), clipped to [0, 100] as in CHAIN's code."""
        (mean, raw), (mean_then, raw_then) = outputs, earlier
        log_std_then = self._log_std(raw_then)
        wider = log_std_then - self._log_std(raw)
        apart = (mean - mean_then) * jnp.exp(-log_std_then)
        # With expm1, so that Gaussians that are almost the same keep their digits.
        return jnp.clip((wider + 0.5 * jnp.expm1(-2.0 * wider) + 0.5 * apart**2).sum(axis=-1), 0.0, 100.0)

    def drift(self, outputs: Outputs, batch: dict[str, Array], step: Array) -> Array:
        """Return -log pi(a|s) less the entropy of pi at s, in nats, (batch,).

        It is 0 on average for what the present policy does (ours). The entropy is that after the tanh, by quadrature.
        Float32 does not tell actions within EDGE of a bound apart, so actions and means are taken to be at most there.
        """
        mean, raw = outputs
        log_std = self._log_std(raw)
        furthest = np.arctanh(1.0 - EDGE)
        mean = jnp.clip(mean, -furthest, furthest)
        x = jnp.arctanh(jnp.clip((batch["action"] - self.middle) / self.scale, EDGE - 1.0, 1.0 - EDGE))
        surprise = 0.5 * ((x - mean) * jnp.exp(-log_std)) ** 2 + self._log_slope(x)
        around = mean + jnp.exp(log_std) * jnp.asarray(NODES)[:, None, None]
        entropy = 0.5 + jnp.tensordot(jnp.asarray(SHARES), self._log_slope(around), axes=1)
        return (surprise - entropy).sum(axis=-1)  # both without log_std + log(2 pi) / 2

    def _log_std(self, raw: Array) -> Array:
        return self.log_std_min + 0.5 * (self.log_std_max - self.log_std_min) * (jnp.tanh(raw) + 1.0)

    def _log_slope(self, x: Array) -> Array:
        """log of the derivative of tanh(x) scale: log(1 - tanh(x)^2) in a form that keeps its digits near 1."""
        return jnp.log(self.scale) + 2.0 * (jnp.log(2.0) - x - jax.nn.softplus(-2.0 * x))
