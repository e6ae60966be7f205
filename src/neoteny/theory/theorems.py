"""The statements about loss and suboptimality, each checked over random problems: one Check each."""

from __future__ import annotations

import numpy as np

from neoteny.theory.bounds import (
    ascend,
    many_actions_case,
    performance_difference,
    random_cases,
    suboptimality,
    tight_case,
    tight_soft_case,
)
from neoteny.theory.mdp import random_policies, random_temperature
from neoteny.theory.population import convergence, expected_loss, exponent, population_limit, recursion_holds
from neoteny.theory.results import Check

ROUNDING = 1e-9
"""Of sums of at most some thousand numbers of size 10 or less, in float64."""


def proposition_1(rng: np.random.Generator, problems: int = 500) -> Check:
    """The recursion of mu, with and without eviction, in exact fractions."""
    runs = [[int(cell) for cell in rng.integers(0, rng.integers(2, 13), 40)] for _ in range(problems)]
    growing = sum(recursion_holds(run) for run in runs)
    bounded = sum(recursion_holds(run, capacity=15) for run in runs)
    printed = sum(recursion_holds(run, capacity=15, as_printed=True) for run in runs)
    return Check(
        "Proposition 1",
        "mu^{k+1} = k/(k+1) mu^k + 1/(k+1) d^{k+1}; once N are held, mu^k + (d^{k+1} - d^{k+1-N})/N",
        f"equal as fractions in {growing} growing and {bounded} bounded buffers",
        problems,
        growing == bounded == problems and printed < problems,
        f"no eviction; the printed form in a bounded buffer held in {printed} of {problems}",
    )


def theorem_1(rng: np.random.Generator, problems: int = 2_000, soft: bool = False) -> Check:
    """Loss = Bellman residual + variance of the next value, in expectation; and convergence as the data grow."""
    groups, states, actions = 10, 5, 3
    shape, sizes = (problems // groups, 6), [100, 1_000, 10_000, 100_000, 1_000_000]
    errors, without, printed, curves = [], [], [], []
    for _ in range(groups):
        alpha = random_temperature(rng) if soft else 0.0
        f, rewards, g = rng.standard_normal(shape), rng.random(shape), rng.standard_normal((shape[0], states, actions))
        transitions, mu = rng.dirichlet(np.ones(states), shape), rng.dirichlet(np.ones(6), shape[0])
        case = (f, rewards, transitions, g, mu, alpha)
        exact = expected_loss(*case)
        errors.append(np.abs(exact - population_limit(*case)).max())
        without.append(np.abs(exact - population_limit(*case, with_variance=False)).min())
        printed.append(np.median(np.abs(exact - population_limit(*case, as_printed=True))))
        curves.append(convergence(rng, shape[0], sizes, alpha))
    power, half = exponent(sizes, np.stack(curves))
    sign = f"; with A.4's + alpha log pi by {np.median(printed):.2g} (median)" if soft else ""
    slips = [*without, *printed] if soft else without
    return Check(
        "Theorem 1 (entropy)" if soft else "Theorem 1",
        "E L = E_mu[(f - T^soft g)^2] + E_mu[Var V^soft_g(s')], V^soft = alpha log sum exp(g / alpha), and L tends to "
        "it: as n^-0.5; so too where a' is drawn and the target is r + g - alpha log pi"
        if soft
        else "E L = E_mu[(f - T g)^2] + E_mu[Var V_g(s')], and L tends to it: as n^-0.5",
        f"largest difference {max(errors):.0e}; |L - limit| falls as n^{power:.3f} +- {half:.3f}",
        problems,
        bool(max(errors) < ROUNDING < min(slips) and abs(power + 0.5) < 0.03),
        f"{'said to hold, not stated; ' if soft else ''}C is 'a constant'; its proof finds the variance. Without it, "
        f"off by {min(without):.0e} or more{sign}",
        {"sizes": sizes, "distance": np.sqrt((np.stack(curves) ** 2).mean(0)).tolist()},
    )


def lemma(rng: np.random.Generator, problems: int = 20_000, soft: bool = False) -> Check:
    """The performance-difference lemma, as an equality."""
    worst, printed = 0.0, 0.0
    for mdp, q, temperature in random_cases(rng, problems):
        other, alpha = random_policies(rng, q.shape), temperature if soft else 0.0
        worst = max(worst, performance_difference(mdp, q, other, alpha).error)
        printed = max(printed, performance_difference(mdp, q, other, alpha, as_printed=True).error)
    return Check(
        "Lemma 2 (entropy)" if soft else "Lemma 1",
        "V(x) - V^pi'(x) = sum of advantages and residuals along pi'"
        + (", with V^soft = E[sum r - alpha log pi]" if soft else ""),
        f"largest difference {worst:.0e}",
        problems,
        worst < ROUNDING,
        f"V^soft = E[sum r + alpha log pi]; with that sign off by up to {printed:.1f}" if soft else "",
    )


def theorem_2(rng: np.random.Generator, problems: int = 20_000, soft: bool = False) -> Check:
    """The suboptimality bound, over random problems and q tables."""
    ratios, broken = [], 0
    for mdp, q, temperature in random_cases(rng, problems):
        found = suboptimality(mdp, q, temperature if soft else 0.0)
        ratios.append(found.ratio.max(-1))
        broken += int((found.left > found.right + ROUNDING).any(-1).sum())
    largest = np.concatenate(ratios)
    mdp, q, temperature = many_actions_case()
    printed = float(suboptimality(mdp, q, temperature, as_printed=True).ratio[0, 0])
    return Check(
        "Theorem 2 (entropy)" if soft else "Theorem 2",
        "V* - V^pi <= sqrt(H) (sqrt(E_pi* sum Delta) + sqrt(E_pi sum Delta)), from every start state",
        f"{broken} broken; largest gap / bound {largest.max():.3f}, median {np.median(largest):.3f}",
        problems,
        broken == 0 and (not soft or printed > 1),
        f"V^soft with + alpha log pi; then gap / bound is {printed:.2f} where many actions share the mass"
        if soft
        else "",
        {"ratios": np.histogram(largest, np.linspace(0, 1, 41))[0].tolist()},
    )


def theorem_2_tight(rng: np.random.Generator, horizons: int = 30) -> Check:
    """The case of equality, for every H; without sqrt(H) it fails from H = 2 on."""
    equal, without, soft = [], [], []
    for horizon in range(1, horizons + 1):
        mdp, q = tight_case(horizon, residual=float(rng.uniform(0.05, 0.5)))
        equal.append(float(suboptimality(mdp, q).ratio[0, 0]))
        without.append(float(suboptimality(mdp, q, root_of_h=False).ratio[0, 0]))
        mdp, q = tight_soft_case(horizon, 1e-4)
        soft.append(float(suboptimality(mdp, q, 1e-4).ratio[0, 0]))
    error = float(np.abs(np.array(equal) - 1).max())
    return Check(
        "Theorem 2, tight",
        "an equality for every H if residuals are -c along pi* and +c along pi; its entropy form as alpha -> 0",
        f"gap / bound 1 within {error:.0e} for H 1 to {horizons}; entropy at alpha 1e-4 from {min(soft):.4f}; "
        f"without sqrt(H) up to {max(without):.2f}",
        2 * horizons,
        error < ROUNDING and 0.995 < min(soft) <= max(soft) <= 1 and min(without[1:]) > 1.4,
        data={"horizons": list(range(1, horizons + 1)), "equal": equal, "without": without, "soft": soft},
    )


def theorem_2_ascent(rng: np.random.Generator, problems: int = 48, steps: int = 1_000) -> Check:
    """The bound against q tables sought to break it; without sqrt(H) it is broken."""
    tops, broken, curves = [], 0, {}
    for horizon in (2, 4, 6):
        for alpha in (0.0, 0.05):
            ratios = ascend(rng, problems, horizon, steps, alpha)[2]
            tops.append(float(ratios.max()))
            broken += int((ratios > 1 / np.sqrt(horizon)).sum())
            curves[f"H {horizon}, alpha {alpha}"] = np.sort(ratios).tolist()
    total = problems * len(tops)
    return Check(
        "Theorem 2, ascent",
        "no q found by ascent on gap / bound breaks it; without sqrt(H) many do",
        f"largest gap / bound {max(tops):.4f}; without sqrt(H) broken in {broken} of {total}",
        total,
        max(tops) <= 1 + ROUNDING and broken > total // 4,
        data=curves,
    )
