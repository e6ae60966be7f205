"""The statements about first gradients, the kernel and saddles, each checked over random problems: one Check each."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from neoteny.replay.ages.schedules import LinearDecay
from neoteny.theory.fqi import FirstGradient, FQIRun, first_gradients
from neoteny.theory.functions import Approximator, NeuralFunction, random_features, tabular
from neoteny.theory.gradient import LAWS, fresh_term, random_problem
from neoteny.theory.kernel import Trained, fresh_full_rank, kernel_ranks
from neoteny.theory.mdp import Floats, random_mdps, random_temperature
from neoteny.theory.population import exponent
from neoteny.theory.results import Check
from neoteny.theory.saddle import network_saddles, quadratic_saddles, slope

STATES, ACTIONS, HORIZON = 4, 3, 4
ROUNDING = 1e-9


def _runs(rng: np.random.Generator, each: int, soft: bool) -> list[tuple[FQIRun, int]]:
    """FQI on random problems, tabular, linear and neural, with exact and with sampled targets; and iterations."""
    cells, runs = STATES * ACTIONS, []
    for _ in range(each):
        classes: list[tuple[Approximator, int]] = [
            (tabular(cells), 60),
            (random_features(rng, cells, 5), 60),
            (NeuralFunction(rng.standard_normal((cells, 4))), 30),
        ]
        for f, iterations in classes:
            for exact in (True, False):
                mdp, alpha = random_mdps(rng, 1, HORIZON, STATES, ACTIONS), random_temperature(rng) if soft else 0.0
                runs.append((FQIRun(mdp, f, exact_targets=exact, temperature=alpha), iterations))
    return runs


def _name(statement: str, soft: bool) -> str:
    return f"{statement} (entropy)" if soft else statement


def _norm(vector: Floats) -> float:
    return float(np.linalg.norm(vector))


def theorem_3(rng: np.random.Generator, each: int = 15, soft: bool = False) -> Check:
    """The two terms sum to the measured gradient; as printed they do not."""
    runs = _runs(rng, each, soft)
    found = [gradient for run, iterations in runs for gradient in first_gradients(rng, run, iterations)]
    error = max(_norm(g.total - g.fresh - g.drift) for g in found)
    moved = [g for g in found if _norm(g.drift) > 1e-6]
    printed, proof, sign = (
        float(np.median([_norm(g.drift - getattr(g, slip)) / _norm(g.drift) for g in moved]))
        for slip in ("drift_printed", "drift_in_proof", "drift_sign")
    )
    slips = f"drift with grad f^2, f_h for f_{{h+1}} in the proof: off by {printed:.2f}, {proof:.2f} of the drift"
    says = "first gradient = (1/k) grad E_d[(f - T f_{h+1}^{k-1})^2] + E_mu[2 (T f_{h+1}^{k-1} - T f_{h+1}^k) grad f]"
    return Check(
        _name("Theorem 3", soft),
        says.replace("T f", "T^soft f") if soft else says,
        f"largest difference {error:.0e} over {len(found):,} gradients; tabular, linear, neural f",
        len(runs),
        error < ROUNDING < min(printed, proof, sign if soft else 1.0),
        f"said to hold, not stated; {slips}; T^soft with A.4's + alpha log pi: by {sign:.2f}" if soft else slips,
    )


def theorem_3_drift(rng: np.random.Generator, each: int = 10, soft: bool = False) -> Check:
    """f_{H+1} = 0 removes the drift at the last step, and nowhere else."""
    runs = _runs(rng, each, soft)
    found = [gradient for run, iterations in runs for gradient in first_gradients(rng, run, iterations)]
    last = max(_norm(g.drift) for g in found if g.h == HORIZON - 1)
    before = [g for g in found if g.h < HORIZON - 1]
    moved = float(np.mean([_norm(g.drift) > 1e-9 for g in before]))
    ratio = float(
        np.sqrt(np.mean([_norm(g.drift) ** 2 for g in before]) / np.mean([_norm(g.fresh) ** 2 for g in before]))
    )
    return Check(
        _name("Theorem 3, drift", soft),
        f"{'V^soft_{H+1} = 0' if soft else 'f_{H+1} = 0'} removes the target drift at h = H alone",
        f"at H {last:.0e}; before H not 0 in {moved:.0%} of gradients, and {ratio:.1f} times the fresh term (RMS)",
        len(runs),
        last == 0 and moved > 0.5,
        "'eliminates the target-drift term entirely'"
        + ("; f_{H+1} = 0, which V^soft makes alpha log A and not 0" if soft else ""),
    )


def theorem_3_conditions(rng: np.random.Generator, problems: int = 10, soft: bool = False) -> Check:
    """What has to hold for the older transitions to add nothing."""
    cells = STATES * ACTIONS
    rests: dict[str, list[float]] = {"as assumed": [], "N 20": [], "SWD": [], "Adam": []}
    for _ in range(problems):
        mdp, f = random_mdps(rng, 1, HORIZON, STATES, ACTIONS), random_features(rng, cells, 5)
        assumed = FQIRun(mdp, f, temperature=random_temperature(rng) if soft else 0.0)
        for name, run in {
            "as assumed": assumed,
            "N 20": replace(assumed, capacity=20),
            "SWD": replace(assumed, schedule=LinearDecay(20, 0.1)),
            "Adam": replace(assumed, f=Trained(rng.standard_normal((cells, 4)), (16,), fit_steps=20)),
        }.items():
            found = [g for g in first_gradients(rng, run, 60) if g.k > 20]
            rests[name].append(
                np.sqrt(sum(_norm(g.rest) ** 2 for g in found) / sum(_norm(g.fresh) ** 2 for g in found))
            )
    means = {name: float(np.mean(values)) for name, values in rests.items()}
    return Check(
        _name("Theorem 3, conditions", soft),
        "older data add nothing if f^{k-1} is an exact argmin, none is evicted and the law uniform; else a third term",
        "third term over fresh term (RMS): " + ", ".join(f"{name} {value:.2g}" for name, value in means.items()),
        problems,
        means["as assumed"] < ROUNDING and min(value for name, value in means.items() if name != "as assumed") > 0.01,
        "states no condition",
    )


def fresh_decay(rng: np.random.Generator, problems: int = 100, soft: bool = False) -> Check:
    """The fresh term with policy and targets fixed: its power of k."""
    ks = [int(k) for k in np.geomspace(10_000, 300_000, 6)]
    alphas = [random_temperature(rng) if soft else 0.0 for _ in range(problems)]
    found = [fresh_term(rng, random_problem(rng, temperature=alpha), LAWS["uniform"], ks) for alpha in alphas]
    single, mean, turned = (
        exponent(ks, np.stack([getattr(term, name) for term in found])) for name in ("single", "mean", "turned")
    )
    return Check(
        _name("Fresh term", soft),
        f"with policy and {'soft ' if soft else ''}targets fixed the fresh term of one visit falls as k^-1; so does "
        "its mean just after the policy changed; its mean under the same policy falls as k^-1.5",
        f"exponents {single[0]:.4f} +- {single[1]:.4f}, {turned[0]:.3f} +- {turned[1]:.3f} and "
        f"{mean[0]:.2f} +- {mean[1]:.2f} (95%)",
        problems,
        abs(single[0] + 1) < 0.001 and abs(turned[0] + 1) < 0.02 and abs(mean[0] + 1.5) < 0.1,
        "Theta(1/k), which is that of one visit: d-hat is an indicator",
    )


def raw_norm(rng: np.random.Generator, problems: int = 20, iterations: int = 320) -> Check:
    """The whole first gradient under real FQI, where policy and targets move: reported, nothing expected."""
    edges = [10, 20, 40, 80, 160, iterations]
    curves: dict[str, list[Floats]] = {"total": [], "fresh": [], "drift": []}
    for _ in range(problems):
        mdp, f = random_mdps(rng, 1, HORIZON, STATES, ACTIONS), random_features(rng, STATES * ACTIONS, 5)
        found = [g for g in first_gradients(rng, FQIRun(mdp, f, exact_targets=False), iterations) if g.h < HORIZON - 1]
        for part, rows in curves.items():
            rows.append(np.array([_rms(found, part, low, high) for low, high in pairwise(edges)]))
    middles = [float(np.sqrt(low * high)) for low, high in pairwise(edges)]
    powers = {part: exponent(middles, np.stack(rows)) for part, rows in curves.items()}
    return Check(
        "Raw norm",
        "first gradient of real FQI (h < H, policy and targets moving): no expectation",
        "exponents " + ", ".join(f"{part} {mean:.2f} +- {half:.2f}" for part, (mean, half) in powers.items()),
        problems,
        None,
        data={"k": middles, **{part: np.exp(np.log(np.stack(rows)).mean(0)).tolist() for part, rows in curves.items()}},
    )


def _rms(found: list[FirstGradient], part: str, low: int, high: int) -> float:
    return float(np.sqrt(np.mean([_norm(getattr(g, part)) ** 2 for g in found if low <= g.k < high])))


def kernel_rank(rng: np.random.Generator, problems: int = 8, iterations: int = 50) -> Check:
    """Effective rank of the kernel along warm-started FQI, beside fresh networks and networks trained once."""
    found = [kernel_ranks(rng, iterations) for _ in range(problems)]
    fresh = np.array([ranks.fresh.mean() for ranks in found])
    drops = np.array([ranks.warm[-10:].mean() for ranks in found]) - fresh
    once = np.array([ranks.once for ranks in found]) - fresh
    half, half_once = (1.96 * change.std(ddof=1) / np.sqrt(problems) for change in (drops, once))
    full, warm_full = (float(np.mean([getattr(r, name) for r in found])) for name in ("fresh_full", "warm_full"))
    narrow = fresh_full_rank(rng, 200, (3, 3))
    return Check(
        "NTK rank",
        "a warm-started network's kernel has a lower effective rank than a fresh one's (argued, not proved)",
        f"effective rank, of 24: fresh {fresh.mean():.1f}; warm-started {drops.mean():+.1f} +- {half:.1f} after "
        f"{iterations} iterations; trained once, from fresh, on what FQI ended with {once.mean():+.1f} +- "
        f"{half_once:.1f}; numerically full rank: fresh {full:.0%}, warm {warm_full:.0%}",
        problems,
        bool(drops.mean() + half < 0),
        f"fresh is full rank with probability 1 if overparameterised; ReLU networks of widths 3, 3 (43 parameters for "
        f"24 cells): {narrow:.0%}",
        data={
            "warm": np.array([r.warm for r in found]).tolist(),
            "fresh": fresh.tolist(),
            "once": (once + fresh).tolist(),
        },
    )


def saddle_time(rng: np.random.Generator, problems: int = 2_000) -> Check:
    """Steps to leave a saddle against the first gradient's size."""
    both = {"quadratic": quadratic_saddles(rng, problems), "network": network_saddles(rng, problems)}
    off = max(float(np.abs(e.steps - e.predicted).max()) for e in both.values())
    cost = slope(both["network"].unstable, both["network"].steps)
    quadratic = both["quadratic"]
    projected, whole = (slope(size, quadratic.steps)[1] for size in (quadratic.unstable, quadratic.whole))
    expected = 1 / np.log1p(0.05)
    return Check(
        "Saddle",
        "steps to leave = log(radius c / g) / log(1 + rate c), g the first gradient's part along the unstable "
        "direction, c its curvature",
        f"within {off:.1f} steps; {cost[0]:.2f} steps for each factor e ({expected:.2f} predicted); variance explained "
        f"by g {projected:.2f}, by the whole gradient's size {whole:.2f}",
        2 * problems,
        off < 2 and abs(cost[0] / expected - 1) < 0.01 and whole < 0.05,
        "'excessively small initial gradients prolong': by a logarithm, and only that projection counts",
        {name: {"size": e.unstable[:300].tolist(), "steps": e.steps[:300].tolist()} for name, e in both.items()},
    )
