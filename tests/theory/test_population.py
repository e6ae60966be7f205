"""Proposition 1 and Theorem 1, and what fails when it should."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from neoteny.theory.mdp import Floats, printed_values, state_values
from neoteny.theory.population import (
    convergence,
    empirical,
    expected_loss,
    exponent,
    next_worth,
    population_limit,
    recursion_holds,
)
from neoteny.theory.theorems import theorem_1


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


def random_case(rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """f, rewards, transitions, g and mu of 300 problems: six cells, four next states, three actions."""
    f, rewards, transitions = rng.standard_normal((300, 6)), rng.random((300, 6)), rng.dirichlet(np.ones(4), (300, 6))
    return f, rewards, transitions, rng.standard_normal((300, 4, 3)), rng.dirichlet(np.ones(6), 300)


@pytest.mark.parametrize("alpha", [0.0, 0.01, 0.3, 3.0])
def test_the_constant_is_the_variance(alpha: float) -> None:
    rng = np.random.default_rng(1)
    f, *problem = (*random_case(rng), alpha)
    exact = expected_loss(f, *problem)
    np.testing.assert_allclose(population_limit(f, *problem), exact, rtol=1e-11)
    assert (population_limit(f, *problem, with_variance=False) < exact - 1e-4).all()
    other = rng.standard_normal((300, 6))  # and it does not depend on f
    constants = [expected_loss(g, *problem) - population_limit(g, *problem, with_variance=False) for g in (f, other)]
    np.testing.assert_allclose(constants[0], constants[1], rtol=1e-9)


def test_without_entropy_it_is_the_plain_form_to_the_bit() -> None:
    f, rewards, transitions, g, mu = random_case(np.random.default_rng(3))
    values = g.max(-1)
    mean = (transitions * values[:, None]).sum(-1)
    variance = (transitions * (values[:, None] - mean[..., None]) ** 2).sum(-1)
    limit = (mu * ((f - rewards - mean) ** 2 + variance)).sum(-1)
    errors = (f[..., None] - rewards[..., None] - values[:, None]) ** 2
    loss = (mu * (transitions * errors).sum(-1)).sum(-1)
    np.testing.assert_array_equal(population_limit(f, rewards, transitions, g, mu, temperature=0.0), limit)
    np.testing.assert_array_equal(expected_loss(f, rewards, transitions, g, mu, temperature=0.0), loss)


def test_the_printed_sign_of_the_entropy_is_not_the_limit() -> None:
    """Appendix A.4 has r + alpha log pi; a uniform policy over three actions is then 2 alpha log 3 too low."""
    case = random_case(np.random.default_rng(4))
    for alpha in (0.1, 1.0):
        off = np.abs(expected_loss(*case, alpha) - population_limit(*case, alpha, as_printed=True))
        assert np.median(off) > 0.1 * alpha
    equal = np.zeros((1, 2, 3))
    np.testing.assert_allclose(printed_values(equal, 0.5), state_values(equal, 0.5) - 2 * 0.5 * np.log(3))


@pytest.mark.parametrize("alpha", [0.05, 0.5, 3.0])
def test_every_action_of_a_boltzmann_policy_is_worth_the_same(alpha: float) -> None:
    """Why a drawn a' adds nothing to the variance: g - alpha log pi = V^soft for each."""
    g = np.random.default_rng(5).standard_normal((50, 4, 3))
    policy, worth = next_worth(g, alpha)
    np.testing.assert_allclose(worth, np.broadcast_to(state_values(g, alpha)[..., None], g.shape), rtol=1e-9)
    np.testing.assert_allclose(policy.sum(-1), 1)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_the_loss_converges_as_one_over_root_n(alpha: float) -> None:
    sizes = [100, 10_000, 1_000_000]
    distances = convergence(np.random.default_rng(2), 1_000, sizes, alpha)
    assert exponent(sizes, distances)[0] == pytest.approx(-0.5, abs=0.02)
    slips = [{"with_variance": False}, {"as_printed": True}] if alpha else [{"with_variance": False}]
    for slip in slips:
        assert convergence(np.random.default_rng(2), 1_000, sizes, alpha, **slip)[-1] > 0.1  # does not converge


@pytest.mark.parametrize("soft", [False, True])
def test_the_finding_holds_on_another_seed(soft: bool) -> None:
    check = theorem_1(np.random.default_rng(99), problems=500, soft=soft)
    assert check.held
    assert check.name == ("Theorem 1 (entropy)" if soft else "Theorem 1")


def test_exponents_by_hand() -> None:
    sizes = np.array([1.0, 10.0, 100.0])
    power, half = exponent(sizes, np.stack([3 * sizes**-1.5, 5 * sizes**-0.5]))
    assert power == pytest.approx(-1)
    assert half == pytest.approx(1.96 * np.sqrt(0.5) / np.sqrt(2))
