"""Units that no longer learn or no longer fire: scores for each unit of a layer, and shares over layers.

Plain formulas for NumPy and JAX arrays alike, inside ``jax.jit`` too; a torch tensor is passed as ``.numpy()``.
The last axis is the units': (batch, units) of a dense layer, (batch, height, width, channels) of a convolution, whose
unit is its channel; the mean over x is then over batch and positions. Hidden layers only, one network at a time: map
or loop over twin critics. NaN in, NaN out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neoteny.plasticity.norms import leaves, namespace


def grama_score(deltas: Any) -> Any:
    """G_i = E_x|dL/dz_i| / mean over k of E_x|dL/dz_k|, of each unit of a layer; SWD (ICLR 2026), Appendix C.1.

    `deltas` are the gradients of each sample's own loss at the PRE-activations z, which one backward pass of the summed
    loss gives: (batch, ..., units) -> (units,). The paper writes the gradient at the unit h, and leaves open which side
    of the activation that is: after it, a dead ReLU still has a gradient and would count as learning.

    A layer without any gradient, such as below a dead one, says nothing about which of its units learn: every score is
    then 1, as if all were alike, so that such a layer is never all flagged (and reset) at once. The paper has 0 / 0.
    """
    return _over_mean(deltas, without=1.0)


def grama_inactive_ratio(scores: Any, tau: float) -> Any:
    """The share of units with G_i <= tau, pooled: flagged over all units of all layers; larger is worse.

    `scores` is a tree of `grama_score` arrays, a dict or a list of layers; tau below 1. SWD (ICLR 2026), Appendix C.1,
    has the threshold and not the pooling; what its code calls GraMa is `gradient_sparsity`.
    """
    return _share(scores, lambda score: score <= tau)


def dormant_score(activations: Any) -> Any:
    """s_i = E_x|h_i| / mean over k of E_x|h_k|, of each unit of a layer; ReDo (Sokar et al. 2023), equation 1.

    `activations` are those after the ReLU: (batch, ..., units) -> (units,).

    A layer that never fires is dormant in whole: every score is 0. Silence is what this score looks for, where no
    gradient at all is only the lack of evidence (`grama_score`). ReDo's own code adds 1e-9 to the mean, and so agrees.
    """
    return _over_mean(activations, without=0.0)


def dormant_ratio(scores: Any, tau: float) -> Any:
    """The share of units with s_i <= tau, pooled over layers; ReDo (Sokar et al. 2023), Section 3.

    `scores` is a tree of `dormant_score` arrays, a dict or a list of layers.
    """
    return _share(scores, lambda score: score <= tau)


def gradient_sparsity(gradients: Any, threshold: float = 1e-8) -> Any:
    """The share of entries with |g| < threshold, over a tree of parameter gradients.

    What the code of SWD (ICLR 2026) calls GraMa, where its Appendix C.1 defines `grama_score`. The threshold is not
    relative to anything: a network whose gradients are all small looks sparse.
    """
    return _share(gradients, lambda g: abs(g) < threshold)


def _over_mean(values: Any, without: float) -> Any:
    """Each unit's mean |value| over the layer's mean of these; `without` where all are 0."""
    magnitudes = abs(values).mean(axis=tuple(range(values.ndim - 1)))
    mean = magnitudes.mean()
    where = namespace(values).where
    return where(mean == 0, without, magnitudes / where(mean == 0, 1.0, mean))


def _share(tree: Any, flag: Any) -> Any:
    """The share of a tree's entries that `flag` marks; NaN if any is not a number, which no comparison would mark."""
    arrays = list(leaves(tree))
    xp = namespace(arrays[0])
    known = sum(xp.isnan(array).sum() for array in arrays) == 0
    return xp.where(known, sum(flag(array).sum() for array in arrays) / sum(array.size for array in arrays), np.nan)
