"""The networks of --network: their forward passes against NumPy, their anatomy, and surgery on them."""

from __future__ import annotations

import functools
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy_twins import mlp, simbav2, simbav2_head

from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.networks import MLP, ActionValues, SimBaV2, largest_singular_value, new_variables
from neoteny.plasticity.flax import collect, modules_of, ntk_gram
from neoteny.remedies import ReDo, ReGraMa, Reset, ShrinkPerturb
from neoteny.remedies.injection import Injection
from neoteny.remedies.surgery import at
from small_agents import batch_of, operated, params_of

NETWORKS = ("mlp", "simba", "layernorm", "crelu", "spectral", "simbav2")
BOUND = np.ones(2, np.float32)
VECTOR, DISCRETE = Problem((5,), False, 2, -BOUND, BOUND, 100), Problem((5,), False, 2, None, None, 100)
PIXELS = Problem((4, 84, 84), True, 3, None, None, 100)


def agent_of(agent: str, network: Any) -> Any:
    match agent:
        case "td3":
            return make_agent(TD3Config((10, 10), network=network), VECTOR)
        case "sac":
            return make_agent(SACConfig(6, 1, 8, 2, network), VECTOR)
        case "pixels":
            return make_agent(DDQNConfig(cnn_width=16, network=network), PIXELS)
    return make_agent(DDQNConfig((10, 10), network=network), DISCRETE)


@functools.cache
def begun(agent_name: str, network: Any) -> tuple[Any, Any]:
    """An agent, and a state whose parameters are away from their special first values, such as LayerNorm's ones."""
    agent = agent_of(agent_name, network)
    state = jax.jit(agent.init)(jax.random.key(0))
    for own in agent.networks.values():
        params = perturbed(params_of(state, own))
        params = params if own.project is None else jax.jit(own.project)(params)
        state = replace(state, **{own.name: replace(getattr(state, own.name), params={"params": params})})
    return agent, state


def perturbed(params: Any) -> Any:
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(1)
    return jax.tree.unflatten(tree, [leaf + 0.1 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves])


def operate(config: Any, agent: Any, state: Any, name: str = "td3") -> Any:
    return jax.jit(lambda state: operated(config, agent, state, batch_of(name, 8), jax.random.key(1)))(state)


@pytest.mark.parametrize("kind", ["mlp", "layernorm", "crelu", "spectral"])
def test_a_layered_networks_forward_pass_is_that_of_its_equations(kind: Any) -> None:
    module = MLP((12, 10), kind)
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    params = perturbed(module.init(jax.random.key(0), x)["params"])
    ours = jax.jit(module.apply)({"params": params}, x)
    assert ours.shape == (7, 10)
    np.testing.assert_allclose(ours, mlp(params, x.astype(np.float64), kind), rtol=2e-5, atol=2e-6)


def test_simbav2s_forward_pass_is_that_of_its_equations() -> None:
    module = ActionValues(SimBaV2(8, 2), 3)
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    params = perturbed(new_variables(module, jax.random.key(0), x)["params"])
    expected = simbav2_head(params["head"], simbav2(params["trunk"], x.astype(np.float64)))
    np.testing.assert_allclose(jax.jit(module.apply)({"params": params}, x), expected, rtol=1e-4, atol=1e-5)


def test_simbav2_begins_with_the_published_scalers() -> None:
    params = new_variables(ActionValues(SimBaV2(8, 2), 3), jax.random.key(0), jnp.zeros((1, 5)))["params"]
    trunk = params["trunk"]
    np.testing.assert_allclose(trunk["input_scaler"]["scale"], np.full(8, np.sqrt(2 / 8)), rtol=1e-6)
    np.testing.assert_allclose(trunk["scaler_1"]["scale"], np.full(32, np.sqrt(2 / 8) / 2), rtol=1e-6)
    np.testing.assert_allclose(trunk["pace_0"]["scale"], np.full(8, 1 / np.sqrt(8)), rtol=1e-6)
    np.testing.assert_allclose(params["head"]["out"]["scaler"]["scale"], np.ones(8))


@pytest.mark.parametrize("shape", [(64, 48), (12, 30), (5, 16), (40, 1)])
def test_the_largest_singular_value_and_its_gradient(shape: tuple[int, int]) -> None:
    kernel = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    left, values, right = np.linalg.svd(kernel.astype(np.float64))
    np.testing.assert_allclose(largest_singular_value(kernel)[0], values[0], rtol=1e-3)
    gradient = jax.grad(lambda k: largest_singular_value(k)[0])(kernel)
    np.testing.assert_allclose(gradient, np.outer(left[:, 0], right[0]), atol=0.05)


@pytest.mark.parametrize("agent_name", ["td3", "sac", "ddqn", "pixels"])
@pytest.mark.parametrize("network", NETWORKS)
def test_every_agent_has_every_network_and_its_anatomy_is_true(agent_name: str, network: Any) -> None:
    if agent_name == "pixels" and network.startswith("simba"):
        return
    agent = agent_of(agent_name, network)
    state = jax.eval_shape(agent.init, jax.random.key(0))
    for own in agent.networks.values():
        params = params_of(state, own)
        assert own.anatomy.hidden
        listed = {path for branch in own.anatomy.branches for path in branch}
        heads = {path[0] for path in listed if len(path) == 1}
        assert listed == {
            (name,) if name in heads else (name, part) for name, parts in params.items() for part in parts
        }
        for layer in own.anatomy.hidden:
            units = at(params, layer.incoming)["kernel"].shape[-1]
            positions = 49 if layer.incoming[-1] == "conv_2" else 1
            times = 2 if network == "crelu" and "conv" not in layer.incoming[-1] else 1
            for reader in layer.outgoing:
                assert at(params, reader)["kernel"].shape[-2] == units * times * positions
            for path in layer.per_unit:
                assert all(leaf.shape == (units,) for leaf in at(params, path).values())
        assert all("kernel" in at(params, head) for head in own.anatomy.heads)
    batch = {name: value[None] for name, value in batch_of(agent_name, 2).items()}
    after, _ = jax.eval_shape(agent.update, state, batch)
    assert jax.tree.map(lambda leaf: leaf.shape, after) == jax.tree.map(lambda leaf: leaf.shape, state)


def test_pixels_go_through_the_convolutions_and_the_varied_layer() -> None:
    for network, units in (("layernorm", 16), ("crelu", 8), ("spectral", 16)):
        params = jax.eval_shape(agent_of("pixels", network).init, jax.random.key(0)).critics.params["params"]
        assert params["head"]["out"]["dense"]["kernel"].shape == (16, 3)
        assert params["trunk"]["layer_0"]["dense"]["kernel"].shape == (3136, units)
        assert ("conv_norm_2" in params["trunk"]) == (network == "layernorm")


def test_crelu_has_the_fan_in_of_an_mlp() -> None:
    plain, half = (begun("td3", network)[1].actor.params["params"] for network in ("mlp", "crelu"))
    assert half["head"]["out"]["dense"]["kernel"].shape == plain["head"]["out"]["dense"]["kernel"].shape
    assert half["trunk"]["layer_1"]["dense"]["kernel"].shape == (10, 5)


def test_redo_on_crelu_silences_both_rows_that_read_a_unit() -> None:
    agent, state = begun("td3", "crelu")
    actor = state.actor
    params = actor.params["params"]
    first = params["trunk"]["layer_0"]["dense"]
    dead = {"kernel": first["kernel"].at[:, 3].set(0.0), "bias": first["bias"].at[3].set(0.0)}  # relu(x) = relu(-x) = 0
    trunk = {**params["trunk"], "layer_0": {"dense": dead}}
    state = replace(state, actor=replace(actor, params={"params": {**params, "trunk": trunk}}))
    after = operate(ReDo(tau=1e-6), agent, state).actor.params["params"]["trunk"]
    assert np.all(after["layer_0"]["dense"]["kernel"][:, 3] != 0)
    read, before = after["layer_1"]["dense"]["kernel"], trunk["layer_1"]["dense"]["kernel"]
    for row in range(10):
        if row in (3, 8):  # 5 units: relu(x_3) is read by row 3, relu(-x_3) by row 3 + 5
            np.testing.assert_array_equal(read[row], 0.0)
        else:
            np.testing.assert_array_equal(read[row], before[row])


def test_redo_renews_a_units_own_layer_norm() -> None:
    agent, state = begun("td3", "layernorm")
    params = state.actor.params["params"]
    norm = params["trunk"]["norm_0"]
    dead = {"scale": norm["scale"].at[2].set(0.0), "bias": norm["bias"].at[2].set(-3.0)}
    own = replace(state.actor, params={"params": {**params, "trunk": {**params["trunk"], "norm_0": dead}}})
    after = operate(ReDo(tau=1e-6), agent, replace(state, actor=own))
    renewed = after.actor.params["params"]["trunk"]["norm_0"]
    assert (float(renewed["scale"][2]), float(renewed["bias"][2])) == (1.0, 0.0)
    np.testing.assert_array_equal(np.delete(renewed["scale"], 2), np.delete(dead["scale"], 2))


@pytest.mark.parametrize("network", ["layernorm", "crelu", "spectral", "simbav2"])
def test_every_remedy_operates_on_every_network(network: Any) -> None:
    agent = agent_of("td3", network)
    state = jax.eval_shape(agent.init, jax.random.key(0))
    for config in (ReDo(), ReGraMa(), Reset(from_="head"), ShrinkPerturb(), Injection()):
        config.check(agent.networks)
        remedy, batch = config.build(100), batch_of("td3", 8)
        jax.eval_shape(partial(operated, config, agent), state, batch, jax.random.key(1))
        assert remedy.surgery is not None


@pytest.mark.parametrize("network", ["layernorm", "spectral", "simbav2"])
def test_injection_changes_no_output_at_first(network: Any) -> None:
    agent = make_agent(TD3Config((10, 10), network=network), VECTOR, remedies=(Injection().build(100),))
    state = begun("td3", network)[1]
    after = operate(Injection(), agent, state)
    batch = batch_of("td3", 8)
    own = agent.networks["actor"]
    forward = jax.jit(lambda variables: own.forward(variables, state, batch))
    np.testing.assert_allclose(forward(state.actor.params), forward(after.actor.params), rtol=1e-4, atol=1e-5)
    assert not np.allclose(at(after.actor.params["params"], own.anatomy.heads[0])["kernel"],
                           at(state.actor.params["params"], own.anatomy.heads[0])["kernel"])  # fmt: skip


def assert_unit_norms(params: Any) -> None:
    kernels = [leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params) if path[-1].key == "kernel"]
    assert len(kernels) >= 5
    for kernel in kernels:
        np.testing.assert_allclose((np.asarray(kernel, np.float64) ** 2).sum(axis=0), 1.0, atol=1e-5)


@pytest.mark.parametrize("config", [ShrinkPerturb(0.5), ReDo(tau=0.5)])
def test_surgery_leaves_simbav2s_incoming_vectors_at_norm_1(config: Any) -> None:
    after = operate(config, *begun("td3", "simbav2"))
    assert_unit_norms(after.actor.params["params"])
    assert_unit_norms(after.critics.params["params"])


@pytest.mark.parametrize(
    ("network", "which"), [("layernorm", "actor"), ("crelu", "actor"), ("spectral", "critics"), ("simbav2", "actor")]
)
def test_the_kernel_equals_the_jacobians(network: Any, which: str) -> None:
    agent, state = begun("td3", network)
    own = agent.networks[which]
    batch, params = batch_of("td3", 8), params_of(state, own)

    def forward(params: Any) -> Any:
        return own.forward({"params": params}, state, batch)

    def f(outputs: Any) -> Any:
        return own.value(outputs, batch)[:, 0]

    def both(params: Any) -> Any:
        passed = collect(params, forward, f)
        jacobian = jax.jacrev(lambda params: f(forward(params)))(params)
        return jacobian, {"/".join(path): layer for path, layer in passed.layers.items()}

    jacobian, named = jax.jit(both)(params)
    layers = {tuple(name.split("/")): layer for name, layer in named.items()}
    rows = np.concatenate([np.asarray(leaf, np.float64).reshape(8, -1) for leaf in jax.tree.leaves(jacobian)], axis=1)
    gram = ntk_gram(layers, modules_of(lambda: forward(params)))
    np.testing.assert_allclose(gram, rows @ rows.T, rtol=1e-4, atol=1e-4 * np.abs(gram).max())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_agent(TD3Config(network="simba"), VECTOR), "--widths is 256 128: give the same for each block"),
        (lambda: make_agent(TD3Config((9, 8), network="crelu"), VECTOR), "--widths is 9 8: give even numbers"),
        (lambda: make_agent(SACConfig(actor_width=9, network="crelu"), VECTOR), "--actor-width is 9 9: give even"),
        (lambda: make_agent(DDQNConfig(network="simbav2"), PIXELS), "is for observations that are vectors"),
        (lambda: make_agent(TD3Config(network="crelu"), VECTOR, MLP((4,))), "leave out --network crelu"),
    ],
)
def test_what_a_network_cannot_be_is_said_in_a_sentence(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
