"""Proposition 1 and Theorem 1, and what fails when it should."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from neoteny.theory.population import (
    convergence,
    empirical,
    expected_loss,
    exponent,
    population_limit,
    recursion_holds,
)


def test_the_recursion_in_fractions() -> None:
    assert empirical([3, 1, 3]) == {3: Fraction(2, 3), 1: Fraction(1, 3)}
    rng = np.random.default_rng(0)
    for _ in range(50):
        cells = [int(cell) for cell in rng.integers(0, 5, 30)]
        assert recursion_holds(cells)
        assert recursion_holds(cells, capacity=7)


def test_the_printed_recursion_fails_once_something_is_evicted() -> None:
    cells = [0, 1, 2, 0, 1]
    assert recursion_holds(cells, capacity=5, as_printed=True)
    assert not recursion_holds(cells, capacity=3, as_printed=True)


def test_the_constant_is_the_variance() -> None:
    rng = np.random.default_rng(1)
    f, rewards, values = rng.standard_normal((300, 6)), rng.random((300, 6)), rng.standard_normal((300, 4))
    problem = (rewards, rng.dirichlet(np.ones(4), (300, 6)), values, rng.dirichlet(np.ones(6), 300))
    exact = expected_loss(f, *problem)
    np.testing.assert_allclose(population_limit(f, *problem), exact, rtol=1e-12)
    assert (population_limit(f, *problem, with_variance=False) < exact - 1e-3).all()
    other = rng.standard_normal((300, 6))  # and it does not depend on f
    constants = [expected_loss(g, *problem) - population_limit(g, *problem, with_variance=False) for g in (f, other)]
    np.testing.assert_allclose(constants[0], constants[1], rtol=1e-9)


def test_the_loss_converges_as_one_over_root_n() -> None:
    sizes = [100, 10_000, 1_000_000]
    distances = convergence(np.random.default_rng(2), 1_000, sizes)
    assert exponent(sizes, distances)[0] == pytest.approx(-0.5, abs=0.02)
    without = convergence(np.random.default_rng(2), 1_000, sizes, with_variance=False)
    assert without[-1] > 0.1  # does not converge


def test_exponents_by_hand() -> None:
    sizes = np.array([1.0, 10.0, 100.0])
    power, half = exponent(sizes, np.stack([3 * sizes**-1.5, 5 * sizes**-0.5]))
    assert power == pytest.approx(-1)
    assert half == pytest.approx(1.96 * np.sqrt(0.5) / np.sqrt(2))
