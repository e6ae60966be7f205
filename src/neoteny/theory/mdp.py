"""Random finite-horizon MDPs, many at a time, with exact values and visitation; SWD (ICLR 2026), Section 3.

Undiscounted and tabular. Steps h count from 0 here and from 1 in the paper. `temperature` is the paper's alpha
(Appendix A.4): 0 is the ordinary MDP, above 0 the entropy-regularised one. Axes, in this order: B problems, X start
states, H steps, S states, A actions. A table q is (B, H, S, A), and what follows the last step is worth 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MDP:
    """B problems of one shape."""

    transitions: Floats
    """P_h(s' | s, a), (B, H, S, A, S)."""
    rewards: Floats
    """r_h(s, a) in [0, 1], (B, H, S, A)."""

    @property
    def horizon(self) -> int:
        """H."""
        return self.rewards.shape[1]


def random_mdps(
    rng: np.random.Generator, problems: int, horizon: int, states: int, actions: int, concentration: float = 1.0
) -> MDP:
    """Transitions from a symmetric Dirichlet (a small `concentration`: nearly deterministic), rewards in [0, 1]."""
    gammas = rng.standard_gamma(concentration, (problems, horizon, states, actions, states))
    gammas += np.finfo(np.float64).tiny  # all of a row may underflow when the concentration is small
    return MDP(gammas / gammas.sum(-1, keepdims=True), rng.random((problems, horizon, states, actions)))


def random_policies(rng: np.random.Generator, q_shape: tuple[int, ...], concentration: float = 1.0) -> Floats:
    """Policies pi_h(a | s), Dirichlet too, of the shape (B, H, S, A)."""
    gammas = rng.standard_gamma(concentration, q_shape) + np.finfo(np.float64).tiny
    return gammas / gammas.sum(-1, keepdims=True)


def random_temperature(rng: np.random.Generator) -> float:
    """An alpha between 0.01, nearly greedy, and 3, nearly uniform where rewards are in [0, 1]."""
    return float(10 ** rng.uniform(-2, 0.5))


def state_values(q: Floats, temperature: float = 0.0) -> Floats:
    """max_a q, or alpha log sum_a exp(q / alpha): (..., A) to (...). The paper's V_g and V^soft_g."""
    top = q.max(-1)
    if temperature == 0:
        return top
    return top + temperature * np.log(np.exp((q - top[..., None]) / temperature).sum(-1))


def printed_values(q: Floats, temperature: float) -> Floats:
    """V^soft of q's Boltzmann policy with the sign that A.4 prints, E_pi[q + alpha log pi]: 2 alpha H(pi) too low."""
    return state_values(q, temperature) - 2 * temperature * entropy(greedy(q, temperature))


def greedy(q: Floats, temperature: float = 0.0) -> Floats:
    """The greedy policy of `q`, the first of equal actions, or its Boltzmann policy exp((q - V^soft) / alpha)."""
    if temperature == 0:
        return np.asarray(np.arange(q.shape[-1]) == q.argmax(-1)[..., None], np.float64)
    return np.exp((q - state_values(q, temperature)[..., None]) / temperature)


def backup(mdp: MDP, values: Floats) -> Floats:
    """r_h + P_h V_{h+1} for all h: `values` (B, H, S) are those of steps 1 .. H, the last of them after the end."""
    batch, horizon, states, actions = mdp.rewards.shape
    flat = mdp.transitions.reshape(batch, horizon, states * actions, states)
    return mdp.rewards + (flat @ values[..., None]).reshape(mdp.rewards.shape)


def bellman(mdp: MDP, q: Floats, temperature: float = 0.0) -> Floats:
    """(T_h q_{h+1})(s, a) for all h: (B, H, S, A) to the same."""
    values = state_values(q, temperature)
    return backup(mdp, np.concatenate([values[:, 1:], np.zeros_like(values[:, :1])], axis=1))


def optimal_q(mdp: MDP, temperature: float = 0.0) -> Floats:
    """Q*, (B, H, S, A)."""
    q = np.zeros_like(mdp.rewards)
    value = np.zeros(mdp.rewards.shape[::2])  # (B, S)
    for h in reversed(range(mdp.horizon)):
        q[:, h] = mdp.rewards[:, h] + np.einsum("bsan,bn->bsa", mdp.transitions[:, h], value)
        value = state_values(q[:, h], temperature)
    return q


def entropy(policy: Floats) -> Floats:
    """-sum_a pi log pi, with 0 log 0 = 0: (..., A) to (...)."""
    return -(policy * np.log(np.where(policy > 0, policy, 1.0))).sum(-1)


def policy_values(mdp: MDP, policy: Floats, temperature: float = 0.0, as_printed: bool = False) -> Floats:
    """V^pi_h(s), (B, H, S): E[sum_{t >= h} r_t - alpha log pi_t]; Section 3 and Appendix A.4.

    The paper prints r + alpha log pi, which pays for certainty, and contradicts its own Bellman equation four lines
    below. `as_printed` takes that sign, to show that the statements then fail.
    """
    values = np.zeros((*mdp.rewards.shape[:3],))
    value = np.zeros_like(values[:, 0])
    bonus = temperature * entropy(policy) * (-1.0 if as_printed else 1.0)
    for h in reversed(range(mdp.horizon)):
        q = mdp.rewards[:, h] + np.einsum("bsan,bn->bsa", mdp.transitions[:, h], value)
        value = (policy[:, h] * q).sum(-1) + bonus[:, h]
        values[:, h] = value
    return values


def visitation(mdp: MDP, policy: Floats) -> Floats:
    """P(s_h = s, a_h = a | s_1 = x) under `policy`, for every start state x: (B, X, H, S, A)."""
    batch, horizon, states, actions = mdp.rewards.shape
    visits = np.empty((batch, states, horizon, states, actions))
    at = np.broadcast_to(np.eye(states), (batch, states, states))
    for h in range(horizon):
        visits[:, :, h] = at[..., None] * policy[:, None, h]
        flat = visits[:, :, h].reshape(batch, states, states * actions)
        at = flat @ mdp.transitions[:, h].reshape(batch, states * actions, states)
    return visits


def along(visits: Floats, table: Floats) -> Floats:
    """E[sum_h table_h(s_h, a_h) | s_1 = x], (B, X), of `visits` (B, X, H, S, A) and `table` (B, H, S, A)."""
    batch, starts = visits.shape[:2]
    return (visits.reshape(batch, starts, -1) @ table.reshape(batch, -1, 1))[..., 0]
