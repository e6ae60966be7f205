"""Churn: how far a network's outputs moved on a reference batch in the k updates since it was last looked at.

Plain formulas for NumPy and JAX arrays alike, inside ``jax.jit`` too; a torch tensor is passed as ``.numpy()``. The
batch is the same both times. SWD (ICLR 2026), Appendix C.2, names churn as what Tang & Berseth (2024) reduce, and does
not measure it.
"""

from __future__ import annotations

from typing import Any


def value_churn(values: Any, earlier: Any) -> Any:
    """mean |Q_t - Q_{t-k}| over all entries: (batch,), (critics, batch) or (batch, actions), both of one shape."""
    return _mean_distance(values, earlier)


def policy_churn(actions: Any, earlier: Any) -> Any:
    """mean |pi_t - pi_{t-k}| over the batch and the action's components: both (batch, components).

    A mean over components and not the length of their difference, so that action spaces compare. Of a discrete policy
    pass probabilities; of a greedy one, one-hot: 2 / actions times the share of states whose action changed.
    """
    return _mean_distance(actions, earlier)


def _mean_distance(now: Any, earlier: Any) -> Any:
    if now.shape != earlier.shape:  # (batch, 1) against (batch,) would broadcast to (batch, batch)
        raise ValueError(f"both must have the same shape, got {now.shape} and {earlier.shape}")
    return abs(now - earlier).mean()
