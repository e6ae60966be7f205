"""What replay laws do to the fresh term, and what the paper leaves out: shares and sample sizes in closed form."""

from __future__ import annotations

import numpy as np

from neoteny.replay.ages.ageing import Describing, Ints, Schedule, concentration
from neoteny.replay.ages.schedules import (
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    TruncatedGeometric,
    Uniform,
    Window,
)
from neoteny.replay.ages.sums import weight_sums
from neoteny.replay.sampling import AgeWeightedSampler
from neoteny.theory.gradient import LAWS, fresh_term, gain, random_problem
from neoteny.theory.population import exponent
from neoteny.theory.results import Check

ROUNDING = 1e-9

CLAIMS = {
    "uniform": ("p_k = 1/k", 1.0, -1.0),
    "SWD, w_min 0.1": ("p_k = (1 - 1/T) / (T (1 - w)^2 / 2 + w k): at most 1/w times 1/k, the same rate", 10.0, -1.0),
    "SWD, w_min 0": ("p_k = 2 / T: no decay past T, and nothing older than T is seen", np.inf, 0.0),
    "SWA": ("p_k = (w + 1/T) / (k - T (1 - w)^2 / 2), w 0.1: the rate of 1/k, w times as large", 0.1025, -1.0),
    "uniform, N 400": ("p_k = 1 / min(k, N): no decay past N; what is evicted adds a term as large", np.inf, 0.0),
}
"""What a law does to the fresh term, up to 1/T once k is past T; what k p_k tends to; the power of k for large k."""


def fresh_under(rng: np.random.Generator, name: str, problems: int = 40) -> Check:
    """The fresh term under a law: predicted in closed form, measured, and its power for large k."""
    says, limit, power = CLAIMS[name]
    law, ks = LAWS[name], [int(k) for k in np.geomspace(20, 30_000, 12)]
    terms = [fresh_term(rng, random_problem(rng), law, ks) for _ in range(problems)]
    error = max(float(np.abs(term.measured / term.single - 1).max()) for term in terms)
    rest = float(np.mean([(term.rest / term.single)[-1] for term in terms]))
    far = np.array([1e6, 1e7, 1e8])
    rate = exponent(far, np.array([law.share(int(k)) for k in far]))[0]
    tends = gain(law, 10**9)
    return Check(
        f"Fresh, {name}",
        f"{says} (T 400)" if "T" in says else says,
        f"measured over predicted within {error:.0e}; {gain(law, 1_000):.2f} and {gain(law, 30_000):.2f} times "
        f"uniform's at k 1,000 and 30,000; exponent for large k {rate + 0.0:.2f}; older data add {rest:.1g} of it",
        problems,
        error < ROUNDING and abs(rate - power) < 0.01 and (not np.isfinite(limit) or abs(tends / limit - 1) < 0.01),
        "SWD 'neutralizes the 1/k attenuation'" if name == "SWD, w_min 0.1" else "",
        {
            "k": ks,
            "measured": np.exp(np.log([term.measured for term in terms]).mean(0)).tolist(),
            "predicted": np.exp(np.log([term.single for term in terms]).mean(0)).tolist(),
        },
    )


SCHEDULES: tuple[Describing, ...] = (
    Uniform(),
    LinearDecay(),
    LinearGrowth(),
    ExponentialDecay(),
    PolynomialDecay(),
    GeometricDecay(),
    InverseAge(),
    EmphasizeRecent(),
    Window(),
    LinearDecay("auto"),
    TruncatedGeometric(),
)


def schedules(rng: np.random.Generator, draws: int = 1_000_000) -> Check:
    """Every schedule's closed forms against the exact law of its sampler, and against draws."""
    sizes, newest = (1_000, 50_000, 300_000), 500
    error, far = 0.0, 0.0
    for schedule in SCHEDULES:
        sampler = AgeWeightedSampler(schedule)
        for size in sizes:
            p = sampler.probabilities(size)
            share, effective = schedule.fresh_share(size, newest), concentration(p)[0]
            error = max(error, abs(share / float(p[:newest].sum()) - 1))
            error = max(error, abs(schedule.effective_sample_size(size) / effective - 1))
        drawn = float(np.mean(sampler.positions(rng, draws, sizes[-1], 1) < newest))
        far = max(far, float(abs(drawn - share) / np.sqrt(share * (1 - share) / draws)))
    return Check(
        "Schedules",
        "share of the newest m of N: W1(m) / W1(N); effective sample size W1(N)^2 / W2(N); W1, W2 sums of w and w^2, "
        "in closed form in T, w_min, N",
        f"within {error:.0e} of the exact laws of {len(SCHEDULES)} schedules; {draws:,} draws at most {far:.1f} "
        "standard errors off",
        len(SCHEDULES) * len(sizes),
        error < 1e-7 and far < 5,
        "not stated",
    )


def lifetime_draws(fraction: float) -> float:
    """How often a transition is drawn in its life under a relative T with w_min 0, for each draw made at a step.

    With T = rho n while n are stored, the transition added at step i weighs 1 - (t - i) / (rho t) at step t, over
    rho t / 2 in all, until t = i / (1 - rho). The integral over its life, (2 / rho) [1 + (1 - 1 / rho) (-ln(1 - rho))],
    does not contain i. For rho = 1 its limit is 2; for rho > 1 a transition is drawn for ever.
    """
    if fraction == 1.0:
        return 2.0
    return 2.0 / fraction * (1.0 + (1.0 - 1.0 / fraction) * -np.log1p(-fraction))


def lifetime(rng: np.random.Generator, volume: int = 64, steps: int = 20_000) -> Check:
    """Draws over a transition's life in a growing buffer: relative T in closed form, summed and by simulation."""
    fractions = (0.05, 0.1, 0.3, 0.6)
    summed, drawn, spread = 0.0, 0.0, 0.0
    for fraction in fractions:
        schedule = LinearDecay(decay_fraction=fraction, min_weight=0.0)
        expected = lifetime_draws(fraction)
        each = [_life(schedule, added, fraction) for added in (1_000, 10_000, 50_000)]
        summed = max(summed, max(abs(life / expected - 1) for life in each))
        spread = max(spread, max(each) / min(each) - 1)
        counts = _simulated(rng, schedule, volume, steps)
        whole = counts[1_000 : int(steps * (1 - fraction))]  # their lives are over
        drawn = max(drawn, abs(float(whole.mean()) / volume / expected - 1))
    uniform = _simulated(rng, Uniform(), volume, steps)
    added = np.arange(1_000, steps - 1_000)
    by_log = float(uniform[added].sum() / (volume * np.log(steps / (added + 0.5))).sum() - 1)
    return Check(
        "Lifetime",
        "draws of a transition in its life, of V a step: uniform V ln(t / i), without bound; T = rho n with w_min 0: "
        "(2 V / rho) [1 + (1 - 1/rho) (-ln(1 - rho))], whenever it was added",
        f"rho 0.05 to 0.6: summed exactly within {summed:.1e} of the closed form, the same for i 1,000 to 50,000 "
        f"within {spread:.1e}; simulated within {drawn:.1e}; uniform within {abs(by_log):.1e}; at rho 0.1 "
        f"{lifetime_draws(0.1):.3f} V",
        len(fractions),
        bool(max(summed, drawn, abs(by_log)) < 0.01),
        "not stated",
    )


def _life(schedule: LinearDecay, added: int, fraction: float) -> float:
    """The expected draws over the life of the transition added at step `added`, for each draw at a step."""
    sizes = range(added, int(added / (1 - fraction)) + 2)
    weights = np.array([float(schedule.weight(size - added + 1, size)) for size in sizes])
    totals = np.array([weight_sums(schedule, size, size).weights for size in sizes])
    return float((weights / totals).sum())


def _simulated(rng: np.random.Generator, schedule: Schedule, volume: int, steps: int) -> Ints:
    """How often each transition was drawn, with `volume` draws after each of `steps` adds."""
    sampler, counts = AgeWeightedSampler(schedule), np.zeros(steps, np.int64)
    for stored in range(1, steps + 1):
        np.add.at(counts, stored - 1 - sampler.positions(rng, volume, stored), 1)
    return counts
