"""Function classes, fitted Q-iteration and Theorem 3: by finite differences, exactly, and what fails when it should."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp

from neoteny.replay.ages.schedules import GeometricDecay, LinearDecay
from neoteny.theory.fqi import FirstGradient, FQIRun, first_gradients, iterate, play
from neoteny.theory.functions import Approximator, NeuralFunction, loss_gradient, random_features, tabular
from neoteny.theory.kernel import Trained
from neoteny.theory.mdp import Floats, backup, optimal_q, random_mdps, state_values

STATES, ACTIONS, HORIZON = 4, 3, 3
CELLS = STATES * ACTIONS
ALPHAS = [0.0, 0.5]
"""Plain, and with entropy."""
norm = np.linalg.norm


def classes() -> dict[str, Approximator]:
    rng = np.random.default_rng(0)
    return {
        "tabular": tabular(CELLS),
        "linear": random_features(rng, CELLS, 5),
        "tanh": NeuralFunction(rng.standard_normal((CELLS, 4))),
        "relu": NeuralFunction(rng.standard_normal((CELLS, 4)), (16,), "relu"),
    }


def gradients(f: Approximator, iterations: int = 40, **settings: object) -> list[FirstGradient]:
    rng = np.random.default_rng(1)
    mdp = random_mdps(rng, 1, HORIZON, STATES, ACTIONS)
    return list(first_gradients(rng, FQIRun(mdp, f, **settings), iterations))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", classes())
def test_gradients_against_finite_differences(name: str) -> None:
    f, rng = classes()[name], np.random.default_rng(2)
    theta = f.initial(rng) + 0.1 * rng.standard_normal(len(f.initial(rng)))
    mu, y, way = rng.dirichlet(np.ones(CELLS)), rng.standard_normal(CELLS), rng.standard_normal(len(theta))
    step = 1e-6
    losses = [mu @ (f.values(theta + sign * step * way) - y) ** 2 for sign in (1, -1)]
    assert loss_gradient(f, theta, mu, y) @ way == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-5)
    if isinstance(f, NeuralFunction):
        np.testing.assert_allclose(f.gram(theta), f.jacobian(theta) @ f.jacobian(theta).T, rtol=1e-10)


@pytest.mark.parametrize("name", ["tabular", "linear", "tanh"])
def test_fits_are_stationary_and_linear_ones_the_best(name: str) -> None:
    f, rng = classes()[name], np.random.default_rng(3)
    mu, y = rng.dirichlet(np.ones(CELLS)), rng.standard_normal(CELLS)
    mu[:2] = 0
    start = f.initial(rng)
    theta = f.fit(start, mu, y)
    assert norm(loss_gradient(f, theta, mu, y)) < 1e-10
    best = mu @ (f.values(theta) - y) ** 2
    for _ in range(20):
        assert mu @ (f.values(theta + 0.01 * rng.standard_normal(len(theta))) - y) ** 2 >= best - 1e-15
    if name == "tabular":  # what was never visited is left as it was
        np.testing.assert_array_equal(theta[:2], start[:2])


def test_adam_lowers_the_loss() -> None:
    f, rng = classes()["relu"], np.random.default_rng(4)
    assert isinstance(f, NeuralFunction)
    theta, mu, y = f.initial(rng), np.full(CELLS, 1 / CELLS), rng.standard_normal(CELLS)
    assert mu @ (f.values(f.descend(theta, mu, y, 300)) - y) ** 2 < 0.2 * (mu @ (f.values(theta) - y) ** 2)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_tabular_fqi_with_exact_targets_finds_the_best(alpha: float) -> None:
    rng = np.random.default_rng(5)
    mdp = random_mdps(rng, 1, HORIZON, STATES, ACTIONS)
    *_, (_, _, theta, _) = iterate(rng, FQIRun(mdp, tabular(CELLS), temperature=alpha, exploration=1.0), 300)
    np.testing.assert_allclose(theta.reshape(HORIZON, STATES, ACTIONS), optimal_q(mdp, alpha)[0], atol=1e-9)


def test_an_f_of_0_after_the_end_is_not_a_value_of_0_with_entropy() -> None:
    """Section 4 sets f_{H+1} = 0, whose soft value is alpha log A; Appendix A.4 sets V_{H+1} = 0, as is done here."""
    mdp, alpha = random_mdps(np.random.default_rng(8), 1, 1, STATES, ACTIONS), 0.5
    printed = backup(mdp, state_values(np.zeros_like(mdp.rewards), alpha))
    np.testing.assert_allclose(printed - optimal_q(mdp, alpha), alpha * np.log(ACTIONS))


@pytest.mark.parametrize("name", ["tabular", "linear", "tanh"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_theorem_3_the_two_terms_are_the_gradient(name: str, exact: bool, alpha: float) -> None:
    parts = gradients(classes()[name], exact_targets=exact, temperature=alpha)
    assert len(parts) == 39 * HORIZON
    for g in parts:
        np.testing.assert_allclose(g.fresh + g.drift, g.total, atol=1e-10)
    assert max(norm(g.fresh) for g in parts) > 1e-2
    assert max(norm(g.drift) for g in parts) > 1e-2


@pytest.mark.parametrize("name", ["tabular", "linear", "tanh"])
@pytest.mark.parametrize(
    ("slip", "alpha"),
    [*product(("drift_printed", "drift_in_proof"), ALPHAS), ("drift_sign", 0.5)],
)
def test_theorem_3_as_printed_is_not_the_gradient(name: str, slip: str, alpha: float) -> None:
    """grad f^2 has a factor f too much; the proof has f_h where f_{h+1} belongs; A.4's V^soft has + alpha log pi."""
    parts = [g for g in gradients(classes()[name], temperature=alpha) if norm(g.drift) > 1e-6]
    off = [norm(g.fresh + getattr(g, slip) - g.total) / norm(g.drift) for g in parts]
    assert np.median(off) > 0.1


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_parts_against_a_naive_twin(alpha: float) -> None:
    """Exploration alone: the same episodes played again, the loss and its newest term differentiated apart.

    Targets are by hand: max at alpha 0, the plain form, and log sum exp above it.
    """
    f, mdp = classes()["linear"], random_mdps(np.random.default_rng(6), 1, 2, STATES, ACTIONS)
    twin, cells = np.random.default_rng(7), []

    def targets(theta: Floats) -> list[Floats]:
        q = f.values(theta[1]).reshape(STATES, ACTIONS)
        value = alpha * logsumexp(q / alpha, axis=-1) if alpha else q.max(-1)
        return [mdp.rewards[0, 0].ravel() + mdp.transitions[0, 0].reshape(CELLS, -1) @ value, mdp.rewards[0, 1].ravel()]

    for k, before, after, parts in iterate(
        np.random.default_rng(7), FQIRun(mdp, f, temperature=alpha, exploration=1.0), 30
    ):
        cells.append(play(twin, mdp, np.full((2, STATES, ACTIONS), 1 / ACTIONS))[0])
        for g in parts:
            mu = np.bincount(np.array(cells)[:, g.h], minlength=CELLS) / k
            newest = np.asarray(np.arange(CELLS) == cells[-1][g.h], np.float64)
            y_old, y_new = (targets(theta)[g.h] for theta in (before, after))
            np.testing.assert_allclose(g.total, loss_gradient(f, before[g.h], mu, y_new), atol=1e-12)
            np.testing.assert_allclose(g.fresh, loss_gradient(f, before[g.h], newest, y_old) / k, atol=1e-12)
            drift = 2 * f.jacobian(before[g.h]).T @ (mu * (y_old - y_new))
            np.testing.assert_allclose(g.drift, drift, atol=1e-12)
            if alpha == 0:
                np.testing.assert_array_equal(g.drift_sign, g.drift)


def test_a_temperature_near_0_is_nearly_the_plain_form() -> None:
    plain, soft = (gradients(classes()["linear"], 10, temperature=alpha, exploration=1.0) for alpha in (0.0, 1e-9))
    for one, other in zip(plain, soft, strict=True):
        np.testing.assert_allclose(one.total, other.total, atol=1e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_drift_is_removed_at_the_last_step_alone(alpha: float) -> None:
    parts = gradients(classes()["linear"], temperature=alpha)
    assert all(not g.drift.any() for g in parts if g.h == HORIZON - 1)
    for h in range(HORIZON - 1):
        assert np.mean([norm(g.drift) > 1e-9 for g in parts if g.h == h]) > 0.9


@pytest.mark.parametrize(
    "settings",
    [{"capacity": 10}, {"schedule": LinearDecay(15, 0.1)}, {}],
    ids=["eviction", "SWD", "no argmin"],
)
def test_theorem_3_needs_its_conditions(settings: dict[str, object]) -> None:
    f = classes()["linear"] if settings else Trained(np.random.default_rng(7).standard_normal((CELLS, 4)), fit_steps=5)
    parts = [g for g in gradients(f, **settings) if g.k > 15]
    assert np.median([norm(g.rest) / max(norm(g.fresh), 1e-6) for g in parts]) > 0.01
    for g in parts:
        np.testing.assert_allclose(g.fresh + g.drift + g.rest, g.total, atol=1e-10)


def test_geometric_decay_keeps_the_old_in_proportion() -> None:
    """The one age law beside uniform whose old weights all shrink alike: no third term."""
    parts = gradients(classes()["linear"], schedule=GeometricDecay(0.1, 0.0))
    assert max(norm(g.rest) for g in parts) < 1e-10
