"""Drift: each agent's formula against slow arithmetic, ranges of age, and what counts as far off."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.plasticity.drift import LEAST, RANGES, SAMPLES, age_ranges, far_share, middle_ages

LOW, HIGH = np.array([-1.0, 0.0], np.float32), np.array([3.0, 0.5], np.float32)
BOX = Problem((5,), False, 2, LOW, HIGH, 1_000)
SCALE, MIDDLE = (2.0, 0.25), (1.0, 0.25)


def drift_of(config: Any, problem: Problem, network: str) -> Any:
    return make_agent(config, problem).networks[network].drift


def test_td3_counts_squares_of_the_noise() -> None:
    rng = np.random.default_rng(0)
    raw, action = rng.normal(size=(20, 2)), rng.uniform(LOW, HIGH, (20, 2))
    for noise, unit in ((0.3, 0.3), (0.0, 1.0)):
        drift = drift_of(TD3Config((8,), exploration_noise=noise), BOX, "actor")
        by_hand = []
        for i in range(20):
            squares = 0.0
            for d in range(2):
                difference = math.tanh(raw[i, d]) * SCALE[d] + MIDDLE[d] - action[i, d]
                squares += difference**2 / (unit * SCALE[d]) ** 2
            by_hand.append(squares / 2)
        found = drift(jnp.asarray(raw, jnp.float32), {"action": jnp.asarray(action, jnp.float32)}, 0.0)
        np.testing.assert_allclose(found, by_hand, rtol=1e-4)


def test_td3_is_1_on_average_for_what_the_policy_does() -> None:
    drift = drift_of(TD3Config((8,), exploration_noise=0.05), BOX, "actor")
    noise = np.random.default_rng(0).normal(size=(20_000, 2)) * 0.05 * SCALE
    action = np.asarray(MIDDLE) + noise
    assert float(drift(jnp.zeros((20_000, 2)), {"action": action}, 0.0).mean()) == pytest.approx(1, rel=0.03)


def surprise_by_hand(mean: float, std: float, action: float, scale: float, middle: float) -> float:
    """-log pi(a|s) less the entropy of one component, with the entropy as an integral over a fine grid."""
    x = math.atanh((action - middle) / scale)

    def minus_log(x: Any) -> Any:
        normal = 0.5 * ((x - mean) / std) ** 2 + math.log(std) + 0.5 * math.log(2 * math.pi)
        return normal + math.log(scale) - 2 * np.log(np.cosh(x))

    grid = np.linspace(mean - 9 * std, mean + 9 * std, 20_001)
    density = np.exp(-0.5 * ((grid - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
    return float(minus_log(x) - np.trapezoid(density * minus_log(grid), grid))


def test_sac_tells_the_surprise_beyond_the_entropy() -> None:
    config = SACConfig(actor_width=4, critic_width=4, log_std_min=-3.0, log_std_max=1.0)
    drift = drift_of(config, BOX, "actor")
    rng = np.random.default_rng(1)
    mean, raw = rng.uniform(-2, 2, (30, 2)), rng.uniform(-2, 2, (30, 2))
    action = rng.uniform(LOW + 0.01, HIGH - 0.01, (30, 2))
    by_hand = [
        sum(
            surprise_by_hand(
                mean[i, d],
                math.exp(-3.0 + 0.5 * 4.0 * (math.tanh(raw[i, d]) + 1.0)),
                action[i, d],
                SCALE[d],
                MIDDLE[d],
            )
            for d in range(2)
        )
        for i in range(30)
    ]
    found = drift((jnp.asarray(mean), jnp.asarray(raw)), {"action": jnp.asarray(action)}, 0.0)
    np.testing.assert_allclose(found, by_hand, rtol=5e-3, atol=5e-3)


def test_sac_is_0_on_average_for_what_the_policy_does_and_at_the_bounds() -> None:
    drift = drift_of(SACConfig(actor_width=4, critic_width=4), BOX, "actor")
    noise = np.random.default_rng(0).normal(size=(40_000, 2))
    mean, raw = np.tile([0.4, -0.8], (40_000, 1)), np.zeros((40_000, 2))  # a log std of -1.5
    action = np.tanh(mean + math.exp(-1.5) * noise) * SCALE + MIDDLE
    assert abs(float(drift((mean, raw), {"action": action}, 0.0).mean())) < 0.02
    saturated = drift((jnp.full((1, 2), 20.0), jnp.full((1, 2), -9.0)), {"action": HIGH[None]}, 0.0)
    assert abs(float(saturated[0])) < 1.1  # each component is -0.5 at its own mean


def test_double_dqn_counts_disagreement_beyond_chance() -> None:
    config = DDQNConfig((8,), epsilon_start=1.0, epsilon_end=0.2, exploration_fraction=0.5)
    drift = drift_of(config, Problem((5,), False, 4, None, None, 1_000), "critics")
    values = np.eye(4)[[0, 1, 2, 3, 3]]
    action = np.array([0, 1, 0, 3, 1])
    for step, epsilon in ((0, 1.0), (250, 0.6), (800, 0.2)):
        chance = epsilon * 3 / 4
        found = drift(jnp.asarray(values), {"action": action}, np.float32(step))
        np.testing.assert_allclose(found, np.array([0, 0, 1, 0, 1]) - chance, rtol=1e-6)


def test_ranges_are_16_that_cover_every_age_once() -> None:
    for stored in [*range(LEAST, 3_000), 12_345, 1_000_000, 10_000_000]:
        bounds = age_ranges(stored)
        assert len(bounds) == RANGES + 1
        assert (bounds[0], bounds[-1]) == (0, stored)
        assert (np.diff(bounds) > 0).all()
    bounds = age_ranges(1_000_000)
    assert bounds[1] == SAMPLES
    np.testing.assert_allclose(bounds[2:] / bounds[1:-1], (1e6 / 32) ** (1 / 15), rtol=0.02)
    middle = middle_ages(1_000_000)
    assert ((bounds[:-1] < middle) & (middle <= bounds[1:])).all()
    with pytest.raises(ValueError, match="num_stored must be >= 80, got 79"):
        age_ranges(79)


def test_far_off_is_beyond_the_newest_ranges_95th_percentile() -> None:
    rng = np.random.default_rng(0)
    distances = rng.exponential(size=(4, 32)) * np.array([[1.0], [1.0], [3.0], [100.0]])
    newest = sorted(distances[0])
    limit = newest[29] + 0.45 * (newest[30] - newest[29])  # of 32, the 0.95 x 31 = 29.45th place
    by_hand = [sum(float(one) > limit for one in row) / 32 for row in distances]
    np.testing.assert_allclose(far_share(distances), by_hand)
    assert by_hand[0] == 2 / 32
    assert by_hand[3] > 0.9


@pytest.mark.parametrize("newest", [0, 1, 3, 20])
def test_of_two_values_the_larger_is_far_off_however_many_of_the_newest_have_it(newest: int) -> None:
    distances = np.full((3, 32), -0.01)
    distances[0, :newest] = distances[1, :7] = distances[2, :] = 0.99
    np.testing.assert_allclose(far_share(distances), [newest / 32, 7 / 32, 1.0])


def test_nothing_is_far_off_where_all_is_alike() -> None:
    np.testing.assert_array_equal(far_share(np.ones((3, 32))), 0.0)
