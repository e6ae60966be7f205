"""Fitted Q-iteration with a growing replay buffer, and the parts of its first gradient; SWD (ICLR 2026), Section 4.

Every iteration k plays one episode with the policy of f^{k-1}, stores a transition for every step h, and fits, from the
last step to the first, f_h^k = argmin_f E_{mu_h^k}[(f - y_h^k)^2] starting from f_h^{k-1}. mu_h^k is the buffer under
the replay's law (uniform in the paper). The targets y are T_h f_{h+1}^k (`exact_targets`, the population loss of
Theorem 1) or r + max f_{h+1}^k(s') of the stored transitions (the loss as defined). Tabular, linear or neural f.
With a temperature, its entropy form (Appendix A.4): T^soft, V^soft in place of max, and Boltzmann policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from neoteny.replay.ages.ageing import Schedule
from neoteny.replay.ages.schedules import Uniform
from neoteny.replay.sampling import AgeWeightedSampler
from neoteny.theory.functions import Approximator
from neoteny.theory.mdp import MDP, Floats, greedy, printed_values, state_values

Ints = NDArray[np.int64]
UNIFORM = Uniform()


@dataclass(frozen=True)
class FirstGradient:
    """Theorem 3: the gradient of iteration k at the parameters that iteration k - 1 left, of one step h, (P,) each."""

    k: int
    h: int
    total: Floats
    """Of the whole loss E_{mu^k}[(f - y^k)^2]."""
    fresh: Floats
    """p times that of the newest transition's (f - y^{k-1})^2; p is its share of draws, 1/k if uniform."""
    drift: Floats
    """E_{mu^k}[2 (y^{k-1} - y^k) grad f]."""
    drift_printed: Floats
    """As the theorem prints it: E_{mu^k}[grad(f^2) (y^{k-1} - y^k)], a factor f too much."""
    drift_in_proof: Floats
    """As the proof prints it: T_h f_h^{k-1} in place of T_h f_{h+1}^{k-1}."""
    drift_sign: Floats
    """With T^soft by the V^soft that Appendix A.4 prints, r + alpha log pi; at temperature 0 the drift itself."""
    rest: Floats
    """Of the older transitions' (f - y^{k-1})^2: 0 if f^{k-1} minimises exactly, nothing is evicted, and the law
    scales all old weights alike."""


@dataclass(frozen=True)
class FQIRun:
    """What an FQI run is made of."""

    mdp: MDP
    """One problem: B = 1."""
    f: Approximator
    """The class of every f_h; cells are numbered s A + a."""
    schedule: Schedule = UNIFORM
    capacity: int = 1_000_000_000
    """Episodes held; the oldest leaves first."""
    exact_targets: bool = True
    temperature: float = 0.0
    """alpha. What follows the last step is worth V_{H+1} = 0: f_{H+1} = 0 would make it V^soft = alpha log A."""
    exploration: float = 0.3
    """The chance of a random action."""


def play(rng: np.random.Generator, mdp: MDP, policy: Floats) -> tuple[Ints, Ints]:
    """One episode of `policy` (H, S, A) from a uniform start: cells (H,) and next states (H,)."""
    _, horizon, states, actions = mdp.rewards.shape
    cells, following = np.empty(horizon, np.int64), np.empty(horizon, np.int64)
    state = int(rng.integers(states))
    for h in range(horizon):
        action = int(rng.choice(actions, p=policy[h, state]))
        cells[h] = state * actions + action
        state = int(rng.choice(states, p=mdp.transitions[0, h, state, action]))
        following[h] = state
    return cells, following


def first_gradients(rng: np.random.Generator, run: FQIRun, iterations: int) -> Iterator[FirstGradient]:
    """Run FQI and yield, of every iteration from the second on and every h, the first gradient and its parts."""
    for k, _, _, parts in iterate(rng, run, iterations):
        if k > 1:
            yield from parts


def iterate(
    rng: np.random.Generator, run: FQIRun, iterations: int
) -> Iterator[tuple[int, Floats, Floats, list[FirstGradient]]]:
    """Run FQI: k, the parameters before and after (H, P), and the parts of the first gradients."""
    mdp, f, alpha = run.mdp, run.f, run.temperature
    _, horizon, states, actions = mdp.rewards.shape
    end = np.zeros((1, states))
    theta = np.stack([f.initial(rng) for _ in range(horizon)])
    stored: list[tuple[Ints, Ints]] = []
    sampler = AgeWeightedSampler(run.schedule)
    for k in range(1, iterations + 1):
        q = np.stack([f.values(theta[h]) for h in range(horizon)]).reshape(horizon, states, actions)
        policy = (1 - run.exploration) * greedy(q, alpha) + run.exploration / actions
        stored = [*stored, play(rng, mdp, policy)][-run.capacity :]
        cells, following = (np.array(column) for column in zip(*stored, strict=True))  # oldest first, (held, H)
        p = sampler.probabilities(len(stored))[::-1]
        old, theta, parts = theta, theta.copy(), []
        before, before_printed = (np.concatenate([worth(q, alpha), end]) for worth in (state_values, printed_values))
        value, value_printed = end[0], end[0]
        for h in reversed(range(horizon)):
            mine, after = cells[:, h], following[:, h]
            y = partial(_targets, run, h, mine, after)
            y_new, y_own = y(value), y(before[h])  # own: f_h in place of f_{h+1}
            moved_sign = y(before_printed[h + 1]) - y(value_printed)
            parts.append(_parts(f, old[h], k, h, mine, p, y(before[h + 1]), y_new, y_own, moved_sign))
            mu: Floats = np.bincount(mine, p, states * actions).astype(np.float64)
            sums = np.bincount(mine, p * y_new, states * actions)
            theta[h] = f.fit(old[h], mu, sums / np.where(mu > 0, mu, 1.0))
            fitted = f.values(theta[h]).reshape(states, actions)
            value, value_printed = state_values(fitted, alpha), printed_values(fitted, alpha)
        yield k, old, theta, parts


def _targets(run: FQIRun, h: int, cells: Ints, following: Ints, value: Floats) -> Floats:
    """y of every stored transition, given the next step's state values (S,)."""
    rewards = run.mdp.rewards[0, h].ravel()
    if run.exact_targets:
        return (rewards + run.mdp.transitions[0, h].reshape(len(rewards), -1) @ value)[cells]
    return rewards[cells] + value[following]


def _parts(
    f: Approximator,
    theta: Floats,
    k: int,
    h: int,
    cells: Ints,
    p: Floats,
    y_old: Floats,
    y_new: Floats,
    y_own: Floats,
    moved_sign: Floats,
) -> FirstGradient:
    jacobian, values = f.jacobian(theta), f.values(theta)[cells]
    newest = np.arange(len(cells)) == len(cells) - 1

    def summed(pull: Floats) -> Floats:
        """sum_i p_i 2 pull_i grad f(cell_i)."""
        return 2.0 * jacobian.T @ np.bincount(cells, p * pull, len(jacobian))

    return FirstGradient(
        k,
        h,
        total=summed(values - y_new),
        fresh=summed((values - y_old) * newest),
        drift=summed(y_old - y_new),
        drift_printed=summed(values * (y_old - y_new)),
        drift_in_proof=summed(y_own - y_new),
        drift_sign=summed(moved_sign),
        rest=summed((values - y_old) * ~newest),
    )
