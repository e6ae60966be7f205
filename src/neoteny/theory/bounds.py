"""Theorem 2 and the performance-difference lemmas, with and without entropy; SWD (ICLR 2026), Appendix A.2, A.4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from neoteny.theory.mdp import (
    MDP,
    Floats,
    along,
    bellman,
    entropy,
    greedy,
    optimal_q,
    policy_values,
    random_mdps,
    random_temperature,
    state_values,
    visitation,
)


@dataclass(frozen=True)
class Comparison:
    """Two sides of a statement for every problem and start state, (B, X) each."""

    left: Floats
    right: Floats

    @property
    def error(self) -> float:
        """The largest |left - right|."""
        return float(np.abs(self.left - self.right).max())

    @property
    def excess(self) -> float:
        """The largest left - right: at most rounding where left <= right is claimed."""
        return float((self.left - self.right).max())

    @property
    def ratio(self) -> Floats:
        """left / right, 0 where both are 0 within rounding."""
        tiny = 1e-12
        return np.where(self.right > tiny, self.left / np.maximum(self.right, tiny), np.where(self.left > tiny, 2.0, 0))


def performance_difference(
    mdp: MDP, q: Floats, other: Floats, temperature: float = 0.0, as_printed: bool = False
) -> Comparison:
    """The lemmas, as equalities: V_1(x) - V_1^{pi'}(x) against what the paper sums along pi'.

    With pi greedy (or Boltzmann) in q and V = J^pi (q - alpha log pi):
    sum_h E_{pi'}[(J^pi - J^{pi'}) q_h + alpha (H(pi_h) - H(pi'_h))] + sum_h E_{pi'}[q_h - T_h q_{h+1}].
    `q` and the policy `other` pi' are (B, H, S, A). `as_printed` gives V^{pi'} the paper's sign of the entropy.
    """
    policy = greedy(q, temperature)
    visits = visitation(mdp, other)
    advantage = (policy * q).sum(-1) - (other * q).sum(-1) + temperature * (entropy(policy) - entropy(other))
    on_states = np.broadcast_to(advantage[..., None], q.shape)
    right = along(visits, on_states) + along(visits, q - bellman(mdp, q, temperature))
    value = policy_values(mdp, other, temperature, as_printed)
    return Comparison(state_values(q[:, 0], temperature) - value[:, 0], right)


def suboptimality(
    mdp: MDP, q: Floats, temperature: float = 0.0, root_of_h: bool = True, as_printed: bool = False
) -> Comparison:
    """Theorem 2: V*_1 - V_1^{pi_q} <= sqrt(H) (sqrt(E_{pi*}[sum_h Delta_h]) + sqrt(E_{pi_q}[sum_h Delta_h])).

    Delta_h = (q_h - T_h q_{h+1})^2. `root_of_h=False` leaves sqrt(H) out, `as_printed` takes the printed sign of the
    entropy in both values: neither holds.
    """
    best, policy = greedy(optimal_q(mdp, temperature), temperature), greedy(q, temperature)
    squared = (q - bellman(mdp, q, temperature)) ** 2
    terms = [np.sqrt(along(visitation(mdp, followed), squared)) for followed in (best, policy)]
    values = [policy_values(mdp, followed, temperature, as_printed)[:, 0] for followed in (best, policy)]
    return Comparison(values[0] - values[1], (mdp.horizon**0.5 if root_of_h else 1.0) * (terms[0] + terms[1]))


def random_cases(rng: np.random.Generator, problems: int, each: int = 250) -> Iterator[tuple[MDP, Floats, float]]:
    """MDPs of many shapes, with q tables from Q* plus a little noise to nothing but noise, and a temperature to use.

    Yields (problems of one shape, q, temperature) until `problems` have been given.
    """
    yielded = 0
    while yielded < problems:
        count = min(each, problems - yielded)
        horizon, states, actions = (int(n) for n in rng.integers((1, 1, 2), (9, 7, 5)))
        mdp = random_mdps(rng, count, horizon, states, actions, concentration=float(10 ** rng.uniform(-1.5, 1)))
        temperature = random_temperature(rng)
        scale = 10 ** rng.uniform(-2, 1, (count, 1, 1, 1))
        kept = rng.integers(0, 2, (count, 1, 1, 1))  # Q* or nothing below the noise
        yield mdp, kept * optimal_q(mdp) + scale * rng.standard_normal(mdp.rewards.shape), temperature
        yielded += count


def tight_case(horizon: int, residual: float = 0.5, lure: float = 0.0) -> tuple[MDP, Floats]:
    """A problem on which Theorem 2 is an equality, from state 0: residual -c along pi*, +c along the greedy path.

    State 0 pays 1/2 - c and keeps; action 1 in the first step pays 1/2 + c and leads to state 1, which pays that for
    ever. q is H - h + 1 halves in both, so the first action, which stays, is as good by q, and is taken: the gap and
    the bound are 2 c H for every H. `lure` is added to q of staying at the first step: a Boltzmann policy needs it.
    """
    transitions = np.zeros((1, horizon, 2, 2, 2))
    transitions[:, :, [0, 1], :, [0, 1]] = 1.0
    rewards = np.zeros((1, horizon, 2, 2))
    rewards[:, :, 0], rewards[:, :, 1] = 0.5 - residual, 0.5 + residual
    transitions[0, 0, 0, 1] = [0.0, 1.0]
    rewards[0, 0, 0, 1] = 0.5 + residual
    q = np.broadcast_to(np.arange(horizon, 0, -1)[None, :, None, None] / 2.0, rewards.shape).copy()
    q[0, 0, 0, 0] += lure
    return MDP(transitions, rewards), q


def tight_soft_case(horizon: int, temperature: float, residual: float = 0.25) -> tuple[MDP, Floats]:
    """The same for the entropy form, which it meets as the temperature falls: alpha log(1 / alpha) of lure.

    After the first step both actions are alike, so q there counts the entropy alpha log 2 of each step to come.
    """
    mdp, q = tight_case(horizon, residual, lure=temperature * np.log(1 / temperature))
    return mdp, q + temperature * np.log(2) * np.arange(horizon - 1, -1, -1)[None, :, None, None]


def many_actions_case(actions: int = 64, change: float = -1e-3) -> tuple[MDP, Floats, float]:
    """One step, one good action among many, a q wrong by `change` on it: MDP, q and a temperature that plays it half.

    The bound holds. With the printed sign of the entropy it does not: the gap is then first-order in the change,
    2 Cov(change, log pi), and log pi varies by more than 1 where many actions share half of the mass.
    """
    mdp = MDP(np.ones((1, 1, 1, actions, 1)), np.zeros((1, 1, 1, actions)))
    mdp.rewards[..., 0] = 1.0
    q = mdp.rewards.copy()
    q[..., 0] += change
    return mdp, q, float(1.0 / np.log(actions - 1))


def ascend(
    rng: np.random.Generator, problems: int, horizon: int, steps: int, temperature: float = 0.0
) -> tuple[MDP, Floats, Floats]:
    """Climb the ratio gap / bound over q: changes are kept where they raise it. Returns problems, q and ratios (B,).

    The ratio is that of the best start state. Random directions, whose length grows by half with a success and shrinks
    by a tenth with a failure, since the gap is a step function of q where the policy is greedy.
    """
    mdp = random_mdps(rng, problems, horizon, 3, 2, concentration=0.3)
    q = optimal_q(mdp, temperature) + rng.standard_normal(mdp.rewards.shape)
    best = suboptimality(mdp, q, temperature).ratio.max(-1)
    length = np.ones((problems, 1, 1, 1))
    for _ in range(steps):
        tried = q + length * rng.standard_normal(q.shape) * (rng.random(q.shape) < 0.3)
        ratio = suboptimality(mdp, tried, temperature).ratio.max(-1)
        better = ratio > best
        q = np.where(better[:, None, None, None], tried, q)
        length = np.clip(np.where(better[:, None, None, None], 1.5 * length, 0.9 * length), 1e-4, 10.0)
        best = np.maximum(best, ratio)
    return mdp, q, best
