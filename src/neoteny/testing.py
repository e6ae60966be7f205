"""Checks for a schedule of your own: ``check_schedule(Mine())`` in your tests."""

from __future__ import annotations

import math

import numpy as np

from neoteny.replay.ages.ageing import Floats, Ints, Schedule, ages_of, evaluate
from neoteny.replay.sampling import AgeWeightedSampler, ReferenceSampler

_DRAWS = 100_000
_TOO_FAR = 6.0


def check_schedule(schedule: Schedule, *, seed: int = 0) -> None:
    """Raise AssertionError unless `schedule` is one that the samplers draw exactly.

    Its weights must be finite, not negative, one for each age, and depend on the age alone (and on what it
    ``uses``), not on which other ages are asked for with it. Draws from part-full and full rings of 1 and 7
    environments are then compared, by chi-square, with Algorithm 1 as the paper prints it.
    """
    rng = np.random.default_rng(seed)
    try:
        for num_stored in (1, 7, 60, 500):
            _check_weights(schedule, num_stored)
            for num_envs in (1, 7):
                _check_draws(schedule, num_stored, num_envs, rng)
    except (TypeError, ValueError) as error:
        raise AssertionError(str(error)) from error


def _check_weights(schedule: Schedule, num_stored: int) -> None:
    ages = 1 + np.arange(num_stored)
    together = evaluate(schedule, ages, num_stored=num_stored, clock=num_stored)
    for alone in (ages[-1:], ages[: num_stored // 2 + 1], ages[::-1]):
        apart = evaluate(schedule, alone, num_stored=num_stored, clock=num_stored)
        assert np.allclose(apart, together[alone - 1], rtol=1e-12), (
            f"{schedule}.weight must depend on the age alone: of {num_stored} ages asked for together and of "
            f"{len(alone)} among them it gave different weights"
        )


def _check_draws(schedule: Schedule, num_stored: int, num_envs: int, rng: np.random.Generator) -> None:
    law = ReferenceSampler(schedule).probabilities(num_stored, num_envs, clock=num_stored)
    drawn = AgeWeightedSampler(schedule).positions(rng, _DRAWS, num_stored, num_envs, clock=num_stored)
    far = _deviations(np.bincount(drawn, minlength=num_stored), law)
    ages = ages_of(np.arange(num_stored), num_envs)
    assert far < _TOO_FAR, (
        f"{schedule}: draws from {num_stored} transitions of {num_envs} environments, ages {ages[0]} to {ages[-1]}, "
        f"are {far:.1f} standard deviations from its law"
    )


def _deviations(counts: Ints, law: Floats) -> float:
    """How far chi-square lies above its mean, in standard deviations (Wilson and Hilferty's normal form)."""
    possible = law > 0
    if counts[~possible].any():
        return math.inf
    expected = law[possible] * counts.sum()
    order = np.argsort(expected)
    pool = np.searchsorted(np.cumsum(expected[order]), 20.0)  # the rarest together, or chi-square means little
    expected, seen = (np.append(x[order][pool + 1 :], x[order][: pool + 1].sum()) for x in (expected, counts[possible]))
    freedom = len(expected) - 1
    if freedom == 0:
        return 0.0
    ratio = float(((seen - expected) ** 2 / expected).sum()) / freedom
    return (math.cbrt(ratio) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
