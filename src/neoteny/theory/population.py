"""Proposition 1 in exact fractions, and Theorem 1 with and without entropy; SWD (ICLR 2026), Section 4, A.1, A.4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from neoteny.theory.mdp import Floats, greedy, printed_values, state_values


def empirical(cells: Sequence[int]) -> dict[int, Fraction]:
    """mu^k: each cell's share of the buffer, in exact fractions."""
    return {cell: Fraction(count, len(cells)) for cell, count in Counter(cells).items()}


def recursion_holds(cells: Sequence[int], capacity: int | None = None, as_printed: bool = False) -> bool:
    """Proposition 1: mu^{k+1} = k/(k+1) mu^k + 1/(k+1) d^{k+1}, for every k, as an equality of fractions.

    `cells` are the visited (s, a) in order. d^{k+1} is 1 at the newest. Departs from the paper, which lets the buffer
    grow without end: past `capacity` N the oldest leaves, and mu^{k+1} = mu^k + (d^{k+1} - d^{k+1-N}) / N instead.
    `as_printed` keeps the paper's recursion there, which is then false.
    """
    held = len(cells) if capacity is None else capacity
    for k in range(1, len(cells)):
        before, after = (empirical(cells[max(0, end - held) : end]) for end in (k, k + 1))
        full = k >= held and not as_printed
        expected = Counter({cell: share * (1 if full else Fraction(k, k + 1)) for cell, share in before.items()})
        weight = Fraction(1, held if full else k + 1)
        expected[cells[k]] += weight  # type: ignore[assignment]  # a Counter of fractions
        if full:
            expected[cells[k - held]] -= weight  # type: ignore[assignment]
        if {cell: share for cell, share in expected.items() if share != 0} != after:
            return False
    return True


def expected_loss(
    f: Floats, rewards: Floats, transitions: Floats, g: Floats, mu: Floats, temperature: float = 0.0
) -> Floats:
    """E_mu E_{s', a'}[(f - r - g(s', a') + alpha log pi(a' | s'))^2], (B,), enumerated; pi is greedy or Boltzmann in g.

    f, rewards, mu (B, n), transitions (B, n, S), g (B, S, A). At temperature 0 it is E_mu E_{s'}[(f - r - max_a g)^2].
    """
    policy, worth = next_worth(g, temperature)
    errors = (f[..., None, None] - rewards[..., None, None] - worth[:, None]) ** 2
    return (mu * (transitions * (policy[:, None] * errors).sum(-1)).sum(-1)).sum(-1)


def next_worth(g: Floats, temperature: float) -> tuple[Floats, Floats]:
    """The policy of `g`, and what its action a' makes a next state worth, g - alpha log pi: (B, S, A) each.

    All that a Boltzmann policy plays are worth the same, V^soft: drawing a' adds no variance to the loss.
    """
    policy = greedy(g, temperature)
    return policy, g - temperature * np.log(np.where(policy > 0, policy, 1.0))


def population_limit(
    f: Floats,
    rewards: Floats,
    transitions: Floats,
    g: Floats,
    mu: Floats,
    temperature: float = 0.0,
    with_variance: bool = True,
    as_printed: bool = False,
) -> Floats:
    """Theorem 1's limit: E_mu[(f - T g)^2] + C, (B,), with C = E_mu[Var_{s'}(V_g(s'))], V_g = max_a g.

    With a temperature, T^soft and V^soft_g = alpha log sum_a exp(g / alpha) in their place. The theorem calls C a
    constant, its proof finds the variance. `with_variance=False` leaves it out, `as_printed` gives V^soft the sign of
    the entropy that Appendix A.4 prints: both are false.
    """
    values = printed_values(g, temperature) if as_printed else state_values(g, temperature)
    mean = (transitions * values[:, None, :]).sum(-1)
    variance = (transitions * (values[:, None, :] - mean[..., None]) ** 2).sum(-1)
    residual = (f - rewards - mean) ** 2
    return (mu * (residual + variance * with_variance)).sum(-1)


def convergence(
    rng: np.random.Generator,
    problems: int,
    sizes: Sequence[int],
    temperature: float = 0.0,
    with_variance: bool = True,
    as_printed: bool = False,
) -> Floats:
    """RMS over problems of L - limit with buffers of each of `sizes`, (sizes,): it falls as size^(-1/2).

    Five cells, four next states, three actions; mu is that of the buffer, as in the theorem. f and g are fixed before
    data are drawn. The theorem needs that, and FQI, whose f_{h+1} was fitted to the same episodes, only nearly has it.
    """
    cells, states, actions = 5, 4, 3
    transitions = rng.dirichlet(np.ones(states), (problems, cells))
    rewards, f = rng.random((problems, cells)), rng.standard_normal((problems, cells))
    g = rng.standard_normal((problems, states, actions))
    joint = (rng.dirichlet(np.ones(cells), problems)[..., None] * transitions).reshape(problems, -1)
    joint /= joint.sum(-1, keepdims=True)
    values = state_values(g, temperature)
    errors = ((f[..., None] - rewards[..., None] - values[:, None, :]) ** 2).reshape(problems, -1)
    deviations = []
    for size in sizes:
        counts = rng.multinomial(size, joint)
        loss = (counts * errors).sum(-1) / size
        mu = counts.reshape(problems, cells, states).sum(-1) / size
        limit = population_limit(f, rewards, transitions, g, mu, temperature, with_variance, as_printed)
        deviations.append(float(np.sqrt(np.mean((loss - limit) ** 2))))
    return np.array(deviations)


def exponent(sizes: Sequence[float] | Floats, curves: Floats) -> tuple[float, float]:
    """The power b of curves ~ sizes^b, fitted to each row (problems, sizes) in logs: mean, half of the 95% interval."""
    x = np.log(np.asarray(sizes, np.float64))
    y = np.log(np.atleast_2d(curves))
    slopes = (y - y.mean(-1, keepdims=True)) @ (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    half = 1.96 * slopes.std(ddof=1) / np.sqrt(len(slopes)) if len(slopes) > 1 else float("nan")
    return float(slopes.mean()), float(half)
