"""What is collected from an agent's own networks, against plain computations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neoteny.agents.agent import Problem
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.agents.registry import make_agent
from neoteny.plasticity.flax import collect, modules_of, ntk_gram
from neoteny.remedies.recycling import scores_by_activity, scores_by_gradient
from neoteny.remedies.surgery import at

BOUND = np.ones(2, np.float32)
AGENTS = {
    "td3": make_agent(TD3Config((12, 10)), Problem((5,), False, 2, -BOUND, BOUND, 100)),
    "sac": make_agent(SACConfig(actor_width=6, critic_width=8), Problem((5,), False, 2, -BOUND, BOUND, 100)),
    "ddqn": make_agent(DDQNConfig((12, 10)), Problem((5,), False, 2, None, None, 100)),
}


def parts(name: str, which: str, size: int = 16) -> tuple[Any, Any, Any, Any]:
    agent = AGENTS[name]
    rng = np.random.default_rng(0)
    discrete = name == "ddqn"
    batch = {
        "obs": rng.normal(size=(size, 5)).astype(np.float32),
        "action": rng.integers(0, 2, size).astype(np.int32)
        if discrete
        else rng.uniform(-1, 1, (size, 2)).astype(np.float32),
    }
    state = agent.init(jax.random.key(1))
    network = agent.networks[which]
    return network, state, getattr(state, network.name).params, batch


CASES = [("td3", "critics"), ("td3", "actor"), ("sac", "critics"), ("sac", "actor"), ("ddqn", "critics")]


@pytest.mark.parametrize(("name", "which"), CASES)
def test_scores_equal_a_straightforward_computation(name: str, which: str) -> None:
    """A bias's gradient of one sample is the gradient at its unit's pre-activation: by vmap, sample after sample."""
    network, state, params, batch = parts(name, which)

    def loss_of(outputs: Any, batch: Any) -> Any:
        return (network.value(outputs, batch) ** 2).sum(axis=-1) + network.value(outputs, batch).sum(axis=-1)

    def one(params: Any, sample: Any) -> Any:
        alone = {field: value[None] for field, value in sample.items()}
        return loss_of(network.forward(params, state, alone), alone)[0]

    each = jax.vmap(jax.grad(one), in_axes=(None, 0))(params, batch)
    passed = collect(params, lambda p: network.forward(p, state, batch), lambda outputs: loss_of(outputs, batch))
    found = scores_by_gradient(passed.layers, network.anatomy.hidden)
    activity = scores_by_activity(passed.layers, network.anatomy.hidden)
    for layer in network.anatomy.hidden:
        size = np.abs(np.asarray(at(each["params"], layer.incoming)["bias"], np.float64)).mean(axis=0)
        expected = size / size.mean() if size.mean() > 0 else np.ones_like(size)
        np.testing.assert_allclose(found[layer.incoming], expected, rtol=1e-5, atol=1e-6)
        fired = np.maximum(np.asarray(passed.layers[layer.incoming].outputs, np.float64), 0).mean(axis=0)
        np.testing.assert_allclose(activity[layer.incoming], fired / fired.mean(), rtol=1e-5, atol=1e-6)
    gradients = jax.grad(lambda p: loss_of(network.forward(p, state, batch), batch).sum())(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), passed.gradients, gradients)


@pytest.mark.parametrize(("name", "which"), CASES)
def test_the_kernel_equals_the_jacobians(name: str, which: str) -> None:
    network, state, params, batch = parts(name, which)

    def f(params: Any) -> Any:
        return network.value(network.forward(params, state, batch), batch)[:, 0]

    jacobian = jax.jacrev(f)(params)
    rows = np.concatenate([np.asarray(leaf, np.float64).reshape(16, -1) for leaf in jax.tree.leaves(jacobian)], axis=1)
    passed = collect(params, lambda p: network.forward(p, state, batch), lambda o: network.value(o, batch)[:, 0])
    modules = modules_of(lambda: network.forward(params, state, batch))
    gram = ntk_gram(passed.layers, modules)
    np.testing.assert_allclose(gram, rows @ rows.T, rtol=1e-4, atol=1e-4 * np.abs(gram).max())


def test_collecting_inside_jit_is_the_same() -> None:
    network, state, params, batch = parts("sac", "critics")

    def run(params: Any) -> Any:
        passed = collect(params, lambda p: network.forward(p, state, batch), lambda o: network.value(o, batch)[:, 0])
        return {"/".join(path): layer.deltas for path, layer in passed.layers.items()}

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), run(params), jax.jit(run)(params))


def test_a_network_of_only_zeros_is_not_called_healthy() -> None:
    network, state, params, batch = parts("td3", "critics")
    dead = jax.tree.map(jnp.zeros_like, params)
    passed = collect(dead, lambda p: network.forward(p, state, batch), lambda o: network.value(o, batch)[:, 0])
    activity = scores_by_activity(passed.layers, network.anatomy.hidden)
    assert all((np.asarray(score) == 0).all() for score in activity.values())
