"""The neural tangent kernel's rank along warm-started FQI, beside fresh initialisation; SWD (ICLR 2026), Section 4.1.

The paper argues: a fresh network's kernel has full rank with probability 1, a warm-started one has no such warrant. It
measures neither. Nothing here is proved; this is what happens in small networks trained with Adam.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neoteny.plasticity.ntk import GramMetrics, gram_metrics
from neoteny.theory.fqi import FQIRun, iterate
from neoteny.theory.functions import NeuralFunction
from neoteny.theory.mdp import Floats, random_mdps


@dataclass(frozen=True)
class Trained(NeuralFunction):
    """A network that is fitted as agents are: some steps of Adam from where it is."""

    fit_steps: int = 100

    def fit(self, theta: Floats, mu: Floats, targets: Floats) -> Floats:
        """No argmin: `fit_steps` of Adam."""
        return self.descend(theta, mu, targets, self.fit_steps)


@dataclass(frozen=True)
class KernelRanks:
    """Effective ranks of the kernel on all n cells, means over the steps h."""

    warm: Floats
    """At the start of each iteration, from the parameters that the one before left, (iterations,)."""
    fresh: Floats
    """Of freshly initialised networks, (draws,)."""
    fresh_full: float
    """The share of fresh kernels of full rank: no eigenvalue within rounding of 0."""
    warm_full: float
    """The same of the warm-started, over all iterations."""
    once: float
    """Of networks trained from fresh, for as many steps, on the values that FQI ended with, all cells alike."""


def kernel_ranks(
    rng: np.random.Generator, iterations: int = 40, draws: int = 20, widths: tuple[int, ...] = (64, 64)
) -> KernelRanks:
    """One FQI run on a random MDP (H 3, 8 states, 3 actions) whose cells have Gaussian features of 8 numbers."""
    mdp = random_mdps(rng, 1, 3, 8, 3, concentration=0.3)
    f = Trained(rng.standard_normal((24, 8)), widths, "relu")
    fresh = [gram_metrics(f.gram(f.initial(rng))) for _ in range(draws)]
    parameters = [(before, after) for _, before, after, _ in iterate(rng, FQIRun(mdp, f), iterations)]
    warm = [[gram_metrics(f.gram(theta)) for theta in before] for before, _ in parameters]
    even = np.full(24, 1 / 24)
    trained = [
        f.descend(f.initial(rng), even, f.values(theta), iterations * f.fit_steps) for theta in parameters[-1][1]
    ]
    return KernelRanks(
        np.array([np.mean([metrics.effective_rank for metrics in steps]) for steps in warm]),
        np.array([metrics.effective_rank for metrics in fresh]),
        _full(fresh, 24),
        _full([metrics for steps in warm for metrics in steps], 24),
        float(np.mean([gram_metrics(f.gram(theta)).effective_rank for theta in trained])),
    )


def fresh_full_rank(rng: np.random.Generator, draws: int, widths: tuple[int, ...]) -> float:
    """The share of freshly initialised ReLU networks whose kernel on 24 Gaussian inputs has full rank."""
    found = []
    for _ in range(draws):
        f = NeuralFunction(rng.standard_normal((24, 8)), widths, "relu")
        found.append(gram_metrics(f.gram(f.initial(rng))))
    return _full(found, 24)


def _full(metrics: list[GramMetrics], cells: int) -> float:
    """The share whose condition number is below what rounding can tell."""
    limit = 1.0 / (cells * np.finfo(np.float64).eps)
    return float(np.mean([found.condition_number < 0.99 * limit for found in metrics]))
