"""Products: the work of a function, by closed forms and by XLA's own count."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from neoteny.agents.configs import TD3Config
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.bench.products import products, seconds


def test_a_product_and_its_gradients() -> None:
    def f(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w).sum()

    w, x = jnp.ones((7, 5)), jnp.ones((3, 7))
    assert products(f, w, x).flops == 2 * 3 * 7 * 5
    assert products(jax.grad(f), w, x).flops == 2 * (2 * 3 * 7 * 5)
    assert products(jax.grad(f, argnums=(0, 1)), w, x).flops == 3 * (2 * 3 * 7 * 5)


def test_a_scan_counts_each_time_and_a_condition_as_often_as_it_is_said_to_hold() -> None:
    w = jnp.ones((4, 4))

    def f(x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(lambda x, _: (x @ w, None), x, length=10)
        return jax.lax.cond(x[0, 0] > 0, lambda x: x @ w @ w, lambda x: x, x)

    once = 2 * 4 * 4 * 4
    assert products(f, jnp.ones((4, 4)), conditional=0.25).flops == once * (10 + 2 * 0.25)


def test_a_convolution() -> None:
    x, kernel = jnp.ones((2, 84, 84, 4)), jnp.ones((8, 8, 4, 32))

    def f(x: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, kernel, (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    assert products(f, x).flops == 2 * (2 * 20 * 20 * 32) * (8 * 8 * 4)


def test_xla_counts_the_same() -> None:
    def f(a: jax.Array, b: jax.Array) -> jax.Array:
        return a @ b

    a, b = jnp.ones((64, 32)), jnp.ones((32, 16))
    counted = jax.jit(f).lower(a, b).compile().cost_analysis()
    assert products(f, a, b).flops == pytest.approx(counted["flops"])


def test_td3_at_hoppers_sizes() -> None:
    """107 MFLOP an update, and of a critic whose value the actor does not use a product more that XLA leaves out."""
    bound = jnp.ones(3)
    agent = make_agent(TD3Config(), Problem((11,), False, 3, bound, bound, 1))
    state = agent.init(jax.random.key(0))
    batch = {
        "obs": jnp.ones((1, 128, 11)),
        "next_obs": jnp.ones((1, 128, 11)),
        "action": jnp.ones((1, 128, 3)),
        "reward": jnp.ones((1, 128)),
        "terminated": jnp.zeros((1, 128)),
    }
    assert 105e6 < products(agent.update, state, batch, conditional=0.5).flops < 116e6


def test_time_is_measured_for_each() -> None:
    work = products(lambda a, b: a @ b @ b, jnp.ones((64, 64)), jnp.ones((64, 64)))
    assert seconds(work, rounds=2) > 0
