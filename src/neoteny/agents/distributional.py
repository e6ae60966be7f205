"""Distributional critics (Bellemare et al. 2017): a value is the mean of a distribution over fixed bins."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import td_target, values_told
from neoteny.agents.continuous import CriticOutputs


def categorical(bins: int, reach: float) -> CriticOutputs:
    """Return what critics give and learn that have a logit for each of `bins` values, evenly from -reach to reach.

    Of several critics the one of the smallest mean tells the target. Its distribution is moved to r + discount (z -
    cost) bin by bin, projected back onto the bins, and learned by cross-entropy.
    """
    support = jnp.linspace(-reach, reach, bins)

    def values(logits: Array) -> Array:
        return jax.nn.softmax(logits) @ support

    def least(logits: Array) -> Array:
        which = values(logits).argmin(axis=0)
        return jnp.take_along_axis(logits, which[None, :, None], axis=0)[0]

    def bootstrap(batch: dict[str, Array], gamma: float, logits: Array, cost: Array) -> Array:
        used = ("reward", "terminated", "discount")
        columns = {name: value[:, None] for name, value in batch.items() if name in used}
        return project(td_target(columns, gamma, support - cost[:, None]), jax.nn.softmax(logits), support)

    def losses(logits: Array, target: Array) -> tuple[Array, dict[str, Array]]:
        cross_entropies = -(target * jax.nn.log_softmax(logits)).sum(axis=-1)
        return cross_entropies.sum(axis=0), values_told(values(logits), target @ support)

    return CriticOutputs(bins, values, least, bootstrap, losses)


def project(atoms: Array, probabilities: Array, support: Array) -> Array:
    """C51's projection: each atom's probability goes to the two bins beside it, more to the nearer one.

    Args:
        atoms: where the probabilities are, (batch, bins); those outside of the support count as at its end.
        probabilities: of the atoms, (batch, bins).
        support: the values of the bins, evenly spaced, (bins,).

    Returns:
        the probabilities of the bins, (batch, bins).
    """
    inside = jnp.clip(atoms, support[0], support[-1])
    share = 1.0 - jnp.abs(inside[:, :, None] - support) / (support[1] - support[0])
    return (probabilities[:, :, None] * jnp.maximum(share, 0.0)).sum(axis=1)
