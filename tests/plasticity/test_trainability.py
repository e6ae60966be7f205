"""Trainability on networks whose answer is known: it sees what cannot be trained, and not the scale of anything."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neoteny.agents.agent import Problem
from neoteny.agents.configs import TD3Config
from neoteny.agents.registry import make_agent
from neoteny.plasticity.trainability import STEPS, advance, begin, loss_after, random_target
from neoteny.remedies.surgery import at, put

BOUND = np.ones(3, np.float32)
AGENT = make_agent(TD3Config(), Problem((17,), False, 3, -BOUND, BOUND, 100))
NETWORK = AGENT.networks["critics"]
RNG = np.random.default_rng(0)
BATCH = {
    "obs": RNG.normal(size=(128, 17)).astype(np.float32),
    "action": RNG.uniform(-1, 1, (128, 3)).astype(np.float32),
}


def values(params: Any) -> Any:
    return NETWORK.value(NETWORK.forward(params, None, BATCH), BATCH)


TARGET = random_target(values(NETWORK.init(jax.random.key(100))))


STEP = jax.jit(lambda fit: advance(fit, values, TARGET))


def loss(params: Any) -> float:
    """What `loss_after` gives, compiled once for all the tests."""
    fit = begin(params, values)
    for _ in range(STEPS + 1):
        fit = STEP(fit)
    return float(fit.least)


@pytest.fixture(scope="module")
def new() -> list[float]:
    return [loss(NETWORK.init(jax.random.key(200 + seed))) for seed in range(4)]


def scaled(params: Any, head: float = 1.0, all_else: float = 1.0) -> Any:
    by = {name: head if name.startswith("head") else all_else for name in params["params"]}
    parts = params["params"].items()
    return {"params": {name: jax.tree.map(partial(jnp.multiply, by[name]), part) for name, part in parts}}


def silenced(params: Any, share: float) -> Any:
    """This share of the units of every hidden layer never fires, by a bias far below 0."""
    rng = np.random.default_rng(1)
    for layer in NETWORK.anatomy.hidden:
        path = ("params", *layer.incoming, "bias")
        bias = at(params, path)
        params = put(params, path, jnp.where(rng.permutation(len(bias)) < share * len(bias), -1e3, bias))
    return params


def collapsed(params: Any) -> Any:
    """Every unit of the first hidden layers looks along one direction of the inputs."""
    for layer in NETWORK.anatomy.hidden:
        if "layer_0" in layer.incoming:
            path = ("params", *layer.incoming)
            both = np.vstack([at(params, path)["kernel"], at(params, path)["bias"][None]])
            u, s, v = np.linalg.svd(both, full_matrices=False)
            one = jnp.asarray(s[0] * np.outer(u[:, 0], v[0]), jnp.float32)
            params = put(params, path, {"kernel": one[:-1], "bias": one[-1]})
    return params


def test_new_networks_are_alike(new: list[float]) -> None:
    others = [loss(NETWORK.init(jax.random.key(300 + seed))) for seed in range(4)]
    assert np.mean(new) < 0.1  # they do learn the target
    assert all(0.6 < other / np.mean(new) < 1.6 for other in others)


@pytest.mark.parametrize("by", [1e-3, 2.0, 100.0, 1e4])
def test_the_scale_of_the_outputs_does_not_count(by: float) -> None:
    params = NETWORK.init(jax.random.key(7))
    assert loss(scaled(params, head=by)) == pytest.approx(loss(params), rel=0.03)  # float32 after 20 steps


def test_nor_does_an_affine_map_of_them() -> None:
    params = NETWORK.init(jax.random.key(7))
    assert float(loss_after(params, lambda p: 8.0 * values(p) + 3.0, TARGET)) == pytest.approx(loss(params), rel=0.03)


@pytest.mark.parametrize("by", [3.0, 10.0])
def test_larger_weights_count_little(by: float, new: list[float]) -> None:
    """20 steps of Adam at 1e-3 left 2.6 times the loss at 10 times these weights."""
    larger = scaled(NETWORK.init(jax.random.key(7)), by, by)
    assert loss(larger) < 1.5 * np.mean(new)


def test_silent_and_collapsed_networks_are_told_apart(new: list[float]) -> None:
    params = NETWORK.init(jax.random.key(7))
    assert loss(silenced(params, 0.5)) < 1.5 * np.mean(new)  # half of its units are enough for this task
    assert loss(silenced(params, 0.95)) > 3 * np.mean(new)
    assert loss(silenced(params, 1.0)) == pytest.approx(1.0)  # nothing can be learned
    assert loss(collapsed(params)) > 3 * np.mean(new)


def test_constant_outputs_are_untrainable_and_not_a_fault() -> None:
    zeros = jax.tree.map(jnp.zeros_like, NETWORK.init(jax.random.key(7)))
    assert loss(zeros) == pytest.approx(1.0)
