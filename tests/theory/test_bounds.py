"""MDPs, the lemmas and Theorem 2: against simulation and by hand, and what fails when it should."""

from __future__ import annotations

import numpy as np
import pytest

from neoteny.theory.bounds import (
    ascend,
    many_actions_case,
    performance_difference,
    random_cases,
    suboptimality,
    tight_case,
    tight_soft_case,
)
from neoteny.theory.mdp import (
    MDP,
    along,
    bellman,
    entropy,
    greedy,
    optimal_q,
    policy_values,
    random_mdps,
    random_policies,
    state_values,
    visitation,
)


@pytest.fixture
def mdp() -> MDP:
    return random_mdps(np.random.default_rng(0), 3, 3, 3, 2)


def test_random_mdps_are_mdps() -> None:
    mdp = random_mdps(np.random.default_rng(1), 200, 3, 4, 2, concentration=0.01)
    np.testing.assert_allclose(mdp.transitions.sum(-1), 1, rtol=1e-12)
    assert ((mdp.rewards >= 0) & (mdp.rewards <= 1)).all()
    assert mdp.transitions.max(-1).mean() > 0.95  # a small concentration is nearly deterministic


def test_values_and_visitation_against_every_path(mdp: MDP) -> None:
    """V^pi with entropy, and where it goes, by enumerating all paths of one problem."""
    policy, alpha = random_policies(np.random.default_rng(2), mdp.rewards.shape), 0.7
    problem, start = 1, 2
    visits, total = np.zeros((3, 3, 2)), 0.0
    paths = [(1.0, start, 0.0)]
    for h in range(3):
        paths_after = []
        for chance, s, gained in paths:
            for a in range(2):
                p = policy[problem, h, s, a]
                visits[h, s, a] += chance * p
                earned = gained + mdp.rewards[problem, h, s, a] - alpha * np.log(p)
                for n in range(3):
                    paths_after.append((chance * p * mdp.transitions[problem, h, s, a, n], n, earned))
        paths = paths_after
    total = sum(chance * gained for chance, _, gained in paths)
    assert policy_values(mdp, policy, alpha)[problem, 0, start] == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(visitation(mdp, policy)[problem, start], visits, rtol=1e-12)
    value = along(visitation(mdp, policy), mdp.rewards)[problem, start]
    assert value == pytest.approx(policy_values(mdp, policy)[problem, 0, start], rel=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_the_optimal_policy_is_optimal(mdp: MDP, alpha: float) -> None:
    q = optimal_q(mdp, alpha)
    np.testing.assert_allclose(bellman(mdp, q, alpha), q, rtol=1e-12)
    best = policy_values(mdp, greedy(q, alpha), alpha)
    np.testing.assert_allclose(best, state_values(q, alpha), rtol=1e-12)
    rng = np.random.default_rng(3)
    for _ in range(50):
        assert (policy_values(mdp, random_policies(rng, q.shape), alpha) <= best + 1e-12).all()


def test_entropy_and_soft_values_by_hand() -> None:
    assert entropy(np.array([1.0, 0.0])) == 0
    assert entropy(np.array([0.5, 0.5])) == pytest.approx(np.log(2))
    assert state_values(np.array([0.0, 0.0]), 2.0) == pytest.approx(2 * np.log(2))
    np.testing.assert_allclose(greedy(np.array([0.0, np.log(3)]), 1.0), [0.25, 0.75])
    assert np.isfinite(state_values(np.array([1e4, -1e4]), 1e-3))


@pytest.mark.parametrize("soft", [False, True])
def test_the_lemmas_are_equalities(soft: bool) -> None:
    rng = np.random.default_rng(4)
    for mdp, q, temperature in random_cases(rng, 2_000):
        other = random_policies(rng, q.shape)
        assert performance_difference(mdp, q, other, temperature if soft else 0.0).error < 1e-10


def test_the_printed_sign_of_the_entropy_breaks_the_lemma() -> None:
    rng = np.random.default_rng(5)
    for mdp, q, temperature in random_cases(rng, 2_000):
        assert performance_difference(mdp, q, random_policies(rng, q.shape), temperature, as_printed=True).error > 1e-3


@pytest.mark.parametrize("soft", [False, True])
def test_theorem_2_on_ten_thousand_problems(soft: bool) -> None:
    count, largest = 0, 0.0
    for mdp, q, temperature in random_cases(np.random.default_rng(6), 10_000):
        bound = suboptimality(mdp, q, temperature if soft else 0.0)
        assert bound.left.min() > -1e-10  # no policy beats the best
        assert bound.excess <= 1e-10
        count += len(q)
        largest = max(largest, float(bound.ratio.max()))
    assert count == 10_000
    assert largest > 0.8  # the problems come near the bound, so a bound a fifth too small is seen


@pytest.mark.parametrize("horizon", [1, 2, 3, 7, 20, 50])
@pytest.mark.parametrize("residual", [0.1, 0.5])
def test_theorem_2_is_an_equality_on_the_tight_case(horizon: int, residual: float) -> None:
    mdp, q = tight_case(horizon, residual)
    bound = suboptimality(mdp, q)
    assert bound.left[0, 0] == pytest.approx(2 * residual * horizon, rel=1e-12)
    assert bound.right[0, 0] == pytest.approx(2 * residual * horizon, rel=1e-12)
    without = suboptimality(mdp, q, root_of_h=False)
    assert without.ratio[0, 0] == pytest.approx(horizon**0.5)


@pytest.mark.parametrize("horizon", [2, 5, 20])
def test_the_entropy_form_nears_equality_as_alpha_falls(horizon: int) -> None:
    ratios = []
    for alpha in (1e-1, 1e-2, 1e-3, 1e-4):
        mdp, q = tight_soft_case(horizon, alpha)
        ratios.append(float(suboptimality(mdp, q, alpha).ratio[0, 0]))
    assert ratios == sorted(ratios)
    assert 0.998 < ratios[-1] <= 1
    assert suboptimality(mdp, q, 1e-4, root_of_h=False).ratio[0, 0] > 1.4


def test_the_printed_sign_of_the_entropy_breaks_the_bound() -> None:
    mdp, q, alpha = many_actions_case()
    assert suboptimality(mdp, q, alpha).ratio[0, 0] < 1
    assert suboptimality(mdp, q, alpha, as_printed=True).ratio[0, 0] > 1.4


def test_ascent_breaks_the_bound_only_without_the_root_of_h() -> None:
    mdp, q, ratios = ascend(np.random.default_rng(7), 24, 4, 300)
    assert ratios.max() <= 1 + 1e-12
    np.testing.assert_allclose(suboptimality(mdp, q).ratio.max(-1), ratios, rtol=1e-12)
    assert (suboptimality(mdp, q, root_of_h=False).ratio.max(-1) > 1).sum() > 6
