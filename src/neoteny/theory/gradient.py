"""The fresh term of Theorem 3 with policy and targets held fixed, under any replay law; SWD (ICLR 2026), Section 4.2.

Transitions come one after another from fixed visitations d over n cells, targets y are fixed, f is linear and fitted
exactly. What is left of Theorem 3 is its fresh term p_k grad (f^{k-1} - y)^2 at the newest cell, with p_k the newest's
share of draws: 1/k in the paper. Targets that f cannot meet keep the gradient itself from falling to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neoteny.replay.ages.ageing import Describing
from neoteny.replay.ages.schedules import LinearDecay, LinearGrowth, Uniform
from neoteny.replay.sampling import AgeWeightedSampler
from neoteny.theory.functions import Linear, loss_gradient, random_features
from neoteny.theory.mdp import Floats, bellman, greedy, random_mdps, visitation


@dataclass(frozen=True)
class Law:
    """A replay: its schedule, and how many transitions are held."""

    schedule: Describing
    capacity: int = 1_000_000_000

    def share(self, k: int) -> float:
        """p_k, the newest's share once k have come: in closed form."""
        return self.schedule.fresh_share(min(k, self.capacity))


LAWS = {
    "uniform": Law(Uniform()),
    "SWD, w_min 0.1": Law(LinearDecay(400, 0.1)),
    "SWD, w_min 0": Law(LinearDecay(400, 0.0)),
    "SWA": Law(LinearGrowth(400, 0.1)),
    "uniform, N 400": Law(Uniform(), capacity=400),
}


@dataclass(frozen=True)
class FreshProblem:
    """One step of an MDP with everything held fixed."""

    f: Linear
    targets: Floats
    """T_1 g, or T_1^soft g, for a fixed g, (n,)."""
    visits: Floats
    """d, where the behaviour policy goes, (n,)."""
    turned: Floats
    """Where another policy, greedy or Boltzmann in g, goes, (n,)."""


def random_problem(
    rng: np.random.Generator, states: int = 8, actions: int = 3, width: int = 6, temperature: float = 0.0
) -> FreshProblem:
    """The first step of a random MDP from a uniform start, a random g, and fewer features than cells.

    With a temperature, targets are T_1^soft g and the other policy is Boltzmann in g.
    """
    mdp = random_mdps(rng, 1, 2, states, actions)
    g = rng.standard_normal(mdp.rewards.shape)
    behaviour = np.full(mdp.rewards.shape, 1.0 / actions)
    other = greedy(g, temperature)
    visits, turned = (visitation(mdp, policy)[0, :, 0].mean(0).ravel() for policy in (behaviour, other))
    targets = bellman(mdp, g, temperature)[0, 0].ravel()
    return FreshProblem(random_features(rng, states * actions, width), targets, visits, turned)


@dataclass(frozen=True)
class FreshTerm:
    """Norms of the fresh term when the k-th transition comes, each of shape (ks,)."""

    single: Floats
    """Root mean square over the newest cell, drawn from d: the paper's d-hat is one visit."""
    mean: Floats
    """Of its mean over the newest cell: what is left of it when the newest visits are many."""
    turned: Floats
    """Of its mean if the policy has just changed to another."""
    measured: Floats
    """RMS over the newest cell of the gradient on the whole buffer less that without the newest, both by the law."""
    rest: Floats
    """Of the older transitions' gradient: 0 in the paper, and wherever the law scales all old weights alike."""


def fresh_term(rng: np.random.Generator, problem: FreshProblem, law: Law, ks: Sequence[int]) -> FreshTerm:
    """The fresh term at each of `ks`, of f^{k-1} fitted to the k - 1 transitions before under the same law.

    `single`, `mean` and `turned` are predicted: the closed form p_k times a gradient. `measured` is not told p_k: it
    takes the law's own probabilities of every transition held, with the newest in each cell in turn.
    """
    f, y, n = problem.f, problem.targets, len(problem.visits)
    cells = rng.choice(n, max(ks), p=problem.visits)
    sampler = AgeWeightedSampler(law.schedule)
    rows = []
    for k in ks:
        past = cells[max(0, k - 1 - law.capacity) : k - 1]
        mu = np.bincount(past, sampler.probabilities(len(past))[::-1], n).astype(np.float64)
        theta = f.fit(f.initial(rng), mu, y)
        each = 2.0 * f.jacobian(theta) * (f.values(theta) - y)[:, None]  # gradient of each cell's squared error
        norms = law.share(k) * np.array(
            [
                np.sqrt(problem.visits @ (each**2).sum(-1)),
                np.linalg.norm(problem.visits @ each),
                np.linalg.norm(problem.turned @ each),
            ]
        )
        held = cells[max(0, k - law.capacity) : k - 1]
        p = sampler.probabilities(len(held) + 1)[::-1]
        without = np.bincount(held, p[:-1], n).astype(np.float64)
        rest = loss_gradient(f, theta, without, y)
        whole = np.stack([loss_gradient(f, theta, without + p[-1] * (np.arange(n) == c), y) for c in range(n)])
        measured = np.sqrt(problem.visits @ ((whole - rest) ** 2).sum(-1))
        rows.append((*norms, measured, np.linalg.norm(rest)))
    return FreshTerm(*(np.array(column) for column in zip(*rows, strict=True)))


def gain(law: Law, k: int) -> float:
    """k p_k: how much larger the fresh term is than under uniform replay that evicts nothing.

    Linear decay: (1 - 1/T) k / (T (1 - w_min)^2 / 2 + w_min k) past (1 - w_min) T, which tends to 1 / w_min: the
    constant of 1/k changes, not its power. With w_min 0 it grows as 2 k / T: p_k stays at 2 / T. Growth tends
    to w_min + 1/T, a bounded buffer to k / N.
    """
    return k * law.share(k)
