"""The fresh-twin gap: by a slow twin in float64, and on networks whose answer is known, in JAX and in torch."""

from __future__ import annotations

import copy
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

from neoteny.plasticity import flax_twin, torch_twin
from neoteny.plasticity.fresh_twin import Units, compare, draw, units_of

RATE = 0.05


def slow_gap(present: np.ndarray, new: list[np.ndarray], batches: list[Any], held_out: list[Any]) -> list[float]:
    """A linear model with Adam, in float64, by the formulas of Kingma & Ba (2015)."""
    left = []
    for start in (present, *new):
        weights = start.astype(np.float64)
        first, second = np.zeros_like(weights), np.zeros_like(weights)
        for count, (inputs, wanted) in enumerate(batches, 1):
            slope = 2 * inputs.T @ (inputs @ weights - wanted) / len(wanted)
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            mean, spread = first / (1 - 0.9**count), second / (1 - 0.999**count)
            weights = weights - RATE * mean / (np.sqrt(spread) + 1e-8)
        left.append(float(np.mean([((inputs @ weights - wanted) ** 2).mean() for inputs, wanted in held_out])))
    return [left[0] / float(np.mean(left[1:])), left[0], float(np.mean(left[1:]))]


def linear_case(seed: int = 0) -> tuple[np.ndarray, list[np.ndarray], list[Any], list[Any]]:
    rng = np.random.default_rng(seed)
    truth, present, *new = rng.normal(size=(4, 3))
    inputs = rng.normal(size=(9, 5, 3))
    drawn = [(one, one @ truth + 0.1 * rng.normal(size=5)) for one in inputs]
    return present, new, drawn[:6], drawn[6:]


def test_a_linear_case_is_a_slow_twins_in_jax_and_torch() -> None:
    present, new, batches, held_out = linear_case()
    expected = slow_gap(present, new, batches, held_out)

    def loss(weights: Any, batch: Any) -> Any:
        return ((batch[0] @ weights - batch[1]) ** 2).mean()

    as_jax = [[tuple(map(jnp.float32, pair)) for pair in pairs] for pairs in (batches, held_out)]
    ours = flax_twin.fresh_twin_gap(
        jnp.float32(present), list(map(jnp.float32, new)), loss, optax.adam(RATE), as_jax[0], as_jax[1]
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-4)  # float32

    def module(weights: np.ndarray) -> nn.Module:
        layer = nn.Linear(3, 1, bias=False).double()
        layer.weight.data = torch.from_numpy(weights)[None].clone()
        return layer

    def torch_loss(layer: Any, batch: Any) -> Any:
        return ((layer(torch.from_numpy(batch[0]))[:, 0] - torch.from_numpy(batch[1])) ** 2).mean()

    theirs = torch_twin.fresh_twin_gap(
        module(present),
        [module(one) for one in new],
        torch_loss,
        lambda p: torch.optim.Adam(p, RATE),
        batches,
        held_out,
    )
    np.testing.assert_allclose(theirs, expected, rtol=1e-9)


def test_the_same_network_has_a_gap_of_1() -> None:
    present, _, batches, held_out = linear_case(1)
    same = flax_twin.fresh_twin_gap(
        jnp.float32(present),
        [jnp.float32(present)] * 2,
        lambda weights, batch: ((batch[0] @ weights - batch[1]) ** 2).mean(),
        optax.adam(RATE),
        [tuple(map(jnp.float32, pair)) for pair in batches],
        [tuple(map(jnp.float32, pair)) for pair in held_out],
    )
    assert same.gap == pytest.approx(1.0, abs=1e-6)
    assert same.present == same.new


def test_without_a_new_network_there_is_no_gap() -> None:
    with pytest.raises(ValueError, match="at least one network to compare with, got none"):
        compare([1.0], [])


@pytest.mark.parametrize("num_stored", [8, 100, 5_000])
def test_what_is_held_out_is_not_trained_on(num_stored: int) -> None:
    held, training = draw(np.random.default_rng(0), num_stored, 2_000, 32)
    assert held.shape == (32, 32)
    assert training.shape == (2_000, 32)
    assert not set(held.ravel()) & set(training.ravel())
    assert len(set(held.ravel())) == min(1_024, num_stored // 4)
    assert {*held.ravel(), *training.ravel()} == set(range(num_stored))  # all the rest is drawn, evenly
    counts = np.bincount(training.ravel(), minlength=num_stored)[sorted(set(training.ravel()))]
    mean = training.size / (num_stored - len(set(held.ravel())))
    assert ((counts - mean) ** 2).sum() / mean < len(counts) + 5 * np.sqrt(2 * len(counts))  # chi-squared


def test_units() -> None:
    assert units_of(np.array([1.0, 3.0])) == (1.0, 2.0)
    assert units_of(np.full(5, 7.0)) == (1.0, 7.0)


def test_a_head_in_units_leaves_the_function() -> None:
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    inputs = torch.randn(5, 3, dtype=torch.float64)
    before = network(inputs)
    changed = copy.deepcopy(network)
    torch_twin.in_units([changed[2]], Units(40.0, -300.0))  # type: ignore[list-item]
    torch.testing.assert_close(changed(inputs) * 40.0 - 300.0, before)
