"""What replay laws do to the fresh term, and what the paper leaves out: shares and sample sizes in closed form."""

from __future__ import annotations

import numpy as np

from neoteny.replay.ages.ageing import Describing, concentration
from neoteny.replay.ages.schedules import (
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    Uniform,
    Window,
)
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
    found = [fresh_term(rng, random_problem(rng), law, ks) for _ in range(problems)]
    error = max(float(np.abs(term.measured / term.single - 1).max()) for term in found)
    rest = float(np.mean([(term.rest / term.single)[-1] for term in found]))
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
            "measured": np.exp(np.log([term.measured for term in found]).mean(0)).tolist(),
            "predicted": np.exp(np.log([term.single for term in found]).mean(0)).tolist(),
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
