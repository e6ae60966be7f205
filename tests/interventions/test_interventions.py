"""Interventions: what they change, what they must leave alone to the bit, and that they compose with every agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import neoteny
from neoteny.agents.agent import Network, Problem
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.interventions.formulas import shrink_perturb
from neoteny.interventions.recycle import recycle, scores_by_activity
from neoteny.interventions.registry import losses_of, make, reset_names
from neoteny.interventions.surgery import at, cleared
from neoteny.networks import Hidden
from neoteny.plasticity.neurons import dormant_ratio
from neoteny.plasticity.trainability import STEPS, advance, begin, random_target
from neoteny.training.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training.inspect import facts_of
from neoteny.training.records import read_metrics

CONFIGS = {
    "td3": TD3Config((12, 10)),
    "sac": SACConfig(actor_width=6, critic_width=8, critic_blocks=2),
    "ddqn": DDQNConfig((12, 10)),
    "pixels": DDQNConfig(cnn_width=16),
}


def agent_of(name: str) -> Any:
    if name == "pixels":
        return make_agent(CONFIGS[name], Problem((4, 84, 84), True, 3, None, None, 100))
    bound = None if name == "ddqn" else np.ones(2, np.float32)
    low = None if bound is None else -bound
    return make_agent(CONFIGS[name], Problem((5,), False, 2, low, bound, 100))


def batch_of(name: str, size: int = 32, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    discrete = name in ("ddqn", "pixels")
    if name == "pixels":
        obs, after = (rng.integers(0, 256, (size, 4, 84, 84), dtype=np.uint8) for _ in range(2))
    else:
        obs, after = (rng.normal(size=(size, 5)).astype(np.float32) for _ in range(2))
    action = rng.integers(0, 2, size).astype(np.int32) if discrete else rng.uniform(-1, 1, (size, 2)).astype(np.float32)
    return {
        "obs": obs,
        "next_obs": after,
        "action": action,
        "reward": rng.normal(size=size).astype(np.float32),
        "terminated": np.zeros(size, np.float32),
        "truncated": np.zeros(size, np.float32),
    }


def trained(name: str, updates: int = 3) -> tuple[Any, Any]:
    """An agent and its state after a few updates, so that moments are not 0."""
    agent = agent_of(name)
    state = agent.init(jax.random.key(0))
    update = jax.jit(agent.update)
    for seed in range(updates):
        state, _ = update(state, {key: value[None] for key, value in batch_of(name, seed=seed).items()})
    return agent, state


def outputs(network: Network, state: Any, batch: dict[str, Any]) -> Any:
    return network.forward(getattr(state, network.params), state, batch)


def moments(opt: Any) -> list[Any]:
    is_adam = lambda node: isinstance(node, optax.ScaleByAdamState)  # noqa: E731
    return [node for node in jax.tree.leaves(opt, is_leaf=is_adam) if is_adam(node)]


def deaden(params: Any, network: Network, units: list[int]) -> Any:
    """Make these units of every hidden layer dead for any data, by their bias."""
    for layer in network.anatomy.hidden:
        bias = at(params["params"], layer.incoming)["bias"]
        at(params["params"], layer.incoming)["bias"] = bias.at[np.array(units)].set(-1e4)
    return params


@pytest.mark.parametrize("intervention", ["redo", "regrama"])
@pytest.mark.parametrize("name", CONFIGS)
def test_recycling_spares_the_living(name: str, intervention: str) -> None:
    """Weights and moments of live units keep their bits, and the output on data does not change."""
    agent, state = trained(name)
    batch, units = batch_of(name), [1, 4]
    for network in agent.networks.values():
        params = deaden(jax.tree.map(jnp.array, getattr(state, network.params)), network, units)
        state = state.__class__(**{**state.__dict__, network.params: params})
    numbers = {"every": 1_000, "tau": 0.0}
    after = jax.jit(lambda s: make(intervention, numbers).apply(s, agent.networks, batch, jax.random.key(1)))(state)
    for network in agent.networks.values():
        before_out, after_out = outputs(network, state, batch), outputs(network, after, batch)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), before_out, after_out)
        old, new = getattr(state, network.params)["params"], getattr(after, network.params)["params"]
        dead_by_layer = flagged_units(state, network, batch, intervention)
        mu = moments(getattr(after, network.optimiser))[0].mu["params"]
        old_mu = moments(getattr(state, network.optimiser))[0].mu["params"]
        for layer in network.anatomy.hidden:
            dead = dead_by_layer[layer.incoming]
            assert set(units) <= set(np.flatnonzero(dead))
            assert not dead.all()
            own, was = at(new, layer.incoming), at(old, layer.incoming)
            assert not np.array_equal(own["kernel"][..., dead], was["kernel"][..., dead])
            assert (np.asarray(own["bias"])[units] > -1e3).all()
            assert (np.asarray(at(mu, layer.incoming)["kernel"])[..., dead] == 0).all()
            np.testing.assert_array_equal(own["bias"][~dead], was["bias"][~dead])
            np.testing.assert_array_equal(
                at(mu, layer.incoming)["bias"][~dead], at(old_mu, layer.incoming)["bias"][~dead]
            )
            for reader in layer.outgoing:
                kernel, kernel_was = np.asarray(at(new, reader)["kernel"]), np.asarray(at(old, reader)["kernel"])
                rows = np.tile(dead, kernel.shape[-2] // len(dead))
                assert (kernel[..., rows, :] == 0).all()
                readers_dead = dead_by_layer.get(reader, np.zeros(kernel.shape[-1], bool))
                live = kernel[..., ~rows, :][..., ~readers_dead]
                np.testing.assert_array_equal(live, kernel_was[..., ~rows, :][..., ~readers_dead])


def flagged_units(state: Any, network: Network, batch: dict[str, Any], intervention: str) -> dict[Any, Any]:
    """Which units are dead on this batch, straight from what passes through the network."""
    passed = losses_of(state, network, batch, jax.random.key(5)).layers
    found = {}
    for layer in network.anatomy.hidden:
        z = np.asarray(passed[layer.incoming].outputs)
        found[layer.incoming] = (z <= 0).reshape(-1, z.shape[-1]).all(axis=0)
    return found


def test_a_flattened_channel_has_a_row_for_every_position() -> None:
    """`repeat` instead of `tile` would zero other rows."""
    agent, state = trained("pixels", 1)
    network = agent.networks["critics"]
    params = state.online
    scores = {
        layer.incoming: jnp.ones(at(params["params"], layer.incoming)["bias"].shape) for layer in network.anatomy.hidden
    }
    scores[("trunk", "conv_2")] = scores[("trunk", "conv_2")].at[5].set(0.0)
    fresh = network.init(jax.random.key(9))
    new, changed = recycle(params, fresh, scores, 0.01, network.anatomy.hidden)
    kernel = np.asarray(new["params"]["trunk"]["layer_0"]["dense"]["kernel"])
    zero = np.flatnonzero((kernel == 0).all(axis=1))
    np.testing.assert_array_equal(zero, 5 + 64 * np.arange(49))  # 7 x 7 positions, channels last
    count = sum(int(leaf.sum()) for leaf in jax.tree.leaves(changed))
    assert count == 3 * 3 * 64 + 1 + 49 * 16


def differ(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return any(not np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", CONFIGS)
def test_injection_changes_no_output_and_freezes(name: str) -> None:
    agent, state = trained(name)
    batch = batch_of(name)
    after = make("injection", {"every": 1}).apply(state, agent.networks, batch, jax.random.key(2))
    for network in agent.networks.values():
        a, b = outputs(network, state, batch), outputs(network, after, batch)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), a, b)
    update = jax.jit(agent.update)
    later = after
    for seed in range(4):
        later, report = update(later, {key: value[None] for key, value in batch_of(name, seed=seed).items()})
        assert np.asarray(report.finite).all()
    for network in agent.networks.values():
        was, now = (getattr(s, network.params)["injected"] for s in (after, later))
        for part in ("kept", "taken"):  # in SAC with weight decay on
            jax.tree.map(np.testing.assert_array_equal, was[part], now[part])
        assert any(
            not np.array_equal(x, y)
            for x, y in zip(*map(jax.tree.leaves, (was["trained"], now["trained"])), strict=True)
        )
        body = zip(
            *map(jax.tree.leaves, (getattr(after, network.params)["params"], getattr(later, network.params)["params"])),
            strict=True,
        )
        assert any(not np.array_equal(x, y) for x, y in body)
    with pytest.raises(ValueError, match="injected already"):
        make("injection", {"every": 1}).apply(after, agent.networks, batch, jax.random.key(2))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("intervention", ["shrink-perturb", "reset"])
def test_targets_get_the_same_draw_and_each_time_is_new(name: str, intervention: str) -> None:
    agent, state = trained(name)
    numbers = {"shrink-perturb": {"every": 1, "lambda": 0.8}, "reset": {"every": 1, "since": None}}[intervention]
    keep = 0.8 if intervention == "shrink-perturb" else 0.0
    apply = make(intervention, numbers).apply
    one, two = (apply(state, agent.networks, {}, jax.random.key(seed)) for seed in (1, 2))
    for network in agent.networks.values():
        for target in network.targets:

            def drawn(which: str) -> Any:
                return jax.tree.map(lambda new, old: new - keep * old, getattr(one, which), getattr(state, which))

            a, b = drawn(network.params), drawn(target)
            for path, leaf in jax.tree_util.tree_leaves_with_path(a):
                if path[-1].key != "scale" or intervention == "reset":
                    np.testing.assert_allclose(leaf, dict(jax.tree_util.tree_leaves_with_path(b))[path], atol=1e-6)
        first, second = (getattr(s, network.params) for s in (one, two))
        kernel = network.anatomy.hidden[0].incoming
        assert not np.array_equal(at(first["params"], kernel)["kernel"], at(second["params"], kernel)["kernel"])
        for node in moments(getattr(one, network.optimiser)):
            for path, leaf in jax.tree_util.tree_leaves_with_path(node.mu):
                if path[-1].key != "scale" or intervention == "reset":
                    assert not np.asarray(leaf).any()


def test_shrink_perturb_by_hand() -> None:
    params = {
        "params": {
            "dense": {"kernel": jnp.array([[2.0]]), "bias": jnp.array([4.0])},
            "norm": {"scale": jnp.array([3.0])},
        }
    }
    fresh = {
        "params": {
            "dense": {"kernel": jnp.array([[1.0]]), "bias": jnp.array([0.0])},
            "norm": {"scale": jnp.array([1.0])},
        }
    }
    new, changed = shrink_perturb(params, fresh, 0.75)
    assert float(new["params"]["dense"]["kernel"][0, 0]) == 0.75 * 2 + 0.25 * 1
    assert float(new["params"]["dense"]["bias"][0]) == 3.0
    assert float(new["params"]["norm"]["scale"][0]) == 3.0
    assert not changed["params"]["norm"]["scale"].any()


def test_recycling_a_plain_tree_by_hand() -> None:
    """Two layers of a user's own: unit 1 of the first is recycled."""
    params = {
        "one": {"kernel": jnp.array([[1.0, 2.0]]), "bias": jnp.array([3.0, 4.0])},
        "two": {"kernel": jnp.array([[5.0], [6.0]])},
    }
    fresh = {
        "one": {"kernel": jnp.array([[7.0, 8.0]]), "bias": jnp.array([9.0, 10.0])},
        "two": {"kernel": jnp.array([[0.5], [0.5]])},
    }
    hidden = [Hidden(("one",), (("two",),))]
    new, changed = recycle(params, fresh, {("one",): jnp.array([1.0, 0.0])}, 0.1, hidden)
    assert new["one"]["kernel"].tolist() == [[1.0, 8.0]]
    assert new["one"]["bias"].tolist() == [3.0, 10.0]
    assert new["two"]["kernel"].tolist() == [[5.0], [0.0]]
    assert changed["two"]["kernel"].tolist() == [[False], [True]]
    adam = optax.adam(1e-3)
    opt = adam.update(params, adam.init(params))[1]
    after = cleared(opt, changed)
    assert after[0].mu["one"]["bias"].tolist() == pytest.approx([0.3, 0.0])
    assert after[0].mu["two"]["kernel"].tolist() == [[0.5], [0.0]]


LAYERS = ["layer_0", "layer_1", "head"]
BLOCKS = ["input", *(f"{part}_{i}" for i in (0, 1) for part in ("norm", "expand", "compress")), "norm_out", "head"]


@pytest.mark.parametrize(
    ("name", "names"),
    [("td3", LAYERS), ("ddqn", LAYERS), ("sac", BLOCKS)],
)
def test_a_reset_can_begin_from_every_name_that_is_listed(name: str, names: list[str]) -> None:
    """It changes the layer and all that follow in every network that has it, heads included, and nothing else."""
    agent, state = trained(name)
    assert sorted(reset_names(agent.networks)) == sorted(names)
    for since in reset_names(agent.networks):
        after = make("reset", {"every": 1, "since": since}).apply(state, agent.networks, {}, jax.random.key(3))
        reached = []
        for network in agent.networks.values():
            old, new = getattr(state, network.params)["params"], getattr(after, network.params)["params"]
            has = since in network.anatomy.names()
            for branch in network.anatomy.branches:
                tail = False
                for path in branch:
                    tail = tail or path[-1] == since or (since == "head" and len(path) == 1)
                    pairs = zip(jax.tree.leaves(at(old, path)), jax.tree.leaves(at(new, path)), strict=True)
                    assert all(np.array_equal(a, b) for a, b in pairs) is not tail, (since, path)
                assert tail is has
            counts = [int(m.count) for m in moments(getattr(after, network.optimiser))]
            assert all(count == 0 for count in counts) is has  # Adam's, too, is left alone where nothing was reset
            reached.append(has)
        assert any(reached)


@pytest.mark.parametrize("name", ["td3", "sac", "ddqn"])
def test_surgery_on_layers_restarts_adams_count_and_recycling_does_not(name: str) -> None:
    agent, state = trained(name)
    numbers = {"every": 1, "tau": 0.025, "lambda": 0.8, "since": None}

    def counts(state: Any) -> list[int]:
        return [int(m.count) for n in agent.networks.values() for m in moments(getattr(state, n.optimiser))]

    assert all(count > 0 for count in counts(state))
    for intervention in ("reset", "shrink-perturb", "injection", "redo", "regrama"):
        after = make(intervention, numbers).apply(state, agent.networks, batch_of(name), jax.random.key(3))
        expected = counts(state) if intervention in ("redo", "regrama") else [0] * len(counts(state))
        assert counts(after) == expected, intervention


def test_reset_from_a_layer_spares_what_is_before() -> None:
    agent, state = trained("td3")
    after = make("reset", {"every": 1, "since": "layer_1"}).apply(state, agent.networks, {}, jax.random.key(3))
    for name in ("actor", "critics"):
        old, new = getattr(state, name)["params"], getattr(after, name)["params"]
        for branch in agent.networks[name].anatomy.branches:
            first, *rest = branch
            jax.tree.map(np.testing.assert_array_equal, at(old, first), at(new, first))
            for path in rest:
                kernel = [np.asarray(leaf) for leaf in jax.tree.leaves(at(new, path))]
                assert not all(
                    np.array_equal(a, b) for a, b in zip(kernel, jax.tree.leaves(at(old, path)), strict=True)
                )


TINY = TD3Config((16, 16), batch_size=16, learning_starts=100)


def run_with(tmp_path: Path, agent: Any, env: str, name: str = "run", steps: int = 300, **plasticity: Any) -> Path:
    config = TrainConfig(
        env,
        agent,
        ReplayConfig("swd", decay_steps=200, capacity=1_000),
        PlasticityConfig(**{"probe_every": 0, **plasticity}),
        total_timesteps=steps,
        eval_every=0,
        checkpoint_every=1e9,
    )
    return neoteny.train(config, out=tmp_path / name, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "env"),
    [
        (TINY, "Pendulum-v1"),
        (SACConfig(actor_width=8, critic_width=8, batch_size=16, learning_starts=100), "Pendulum-v1"),
        (DDQNConfig((16, 16), batch_size=16, learning_starts=100, utd=1.0), "CartPole-v1"),
    ],
    ids=["td3", "sac", "ddqn"],
)
def test_all_of_them_at_once(agent: Any, env: str, tmp_path: Path) -> None:
    run = run_with(
        tmp_path,
        agent,
        env,
        probe_every=100,
        intervention=("regrama", "redo", "shrink-perturb", "injection", "reset"),
        regrama_every=60,
        redo_every=70,
        shrink_every=80,
        reset_every=150,
    )
    made = [line["intervention"] for line in read_metrics(run) if "intervention" in line]
    assert {name: made.count(name) for name in set(made)} == {
        "regrama": 3,
        "redo": 2,
        "shrink-perturb": 2,
        "injection": 1,
        "reset": 1,
    }
    timing = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    assert timing[-1]["compilations"]["update"] == 2
    measured = [line for line in read_metrics(run) if "probe/critics/trainability" in line]
    assert [line["updates"] for line in measured] == [1, 100, 200]
    assert all(value is not None for line in measured for value in line.values())
    neoteny.load_policy(run)


@pytest.mark.slow
def test_they_survive_a_resume(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "intervention": ("injection", "redo", "shrink-perturb"),
        "injection_at": 100,
        "redo_every": 90,
        "shrink_every": 130,
        "probe_every": 50,
    }
    run = run_with(tmp_path, TINY, "Pendulum-v1", **options)
    neoteny.resume(run, steps=420, quiet=True)
    whole = run_with(tmp_path, TINY, "Pendulum-v1", name="whole", steps=420, **options)
    assert facts_of(run)["checkpoint"]["digests"] == facts_of(whole)["checkpoint"]["digests"]
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_without_injection_the_update_is_compiled_once(tmp_path: Path) -> None:
    run = run_with(tmp_path, TINY, "Pendulum-v1", intervention=("redo",), redo_every=50)
    timing = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    assert timing[-1]["compilations"]["update"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"intervention": ("rest",)}, "--intervention must be one of regrama, redo, .*, got 'rest'"),
        ({"redo_tau": 0.1}, "--redo-tau is for --intervention redo, which is not asked for"),
        ({"intervention": ("reset",), "reset_every": 0}, "--reset-every must be >= 1, got 0"),
        ({"intervention": ("shrink-perturb",), "shrink_lambda": 1.5}, r"--shrink-lambda must be in \[0, 1\], got 1.5"),
        ({"probe_every": -1}, "--probe-every must be >= 0, got -1"),
    ],
)
def test_bad_numbers_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PlasticityConfig(**options)


def test_a_layer_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--reset-from must be one of layer_0, layer_1, head, got 'layer_9'"):
        run_with(tmp_path, TINY, "Pendulum-v1", intervention=("reset",), reset_from="layer_9")


def make_dormant(params: Any, network: Network, how: str, seed: int) -> Any:
    """A shifted bias: nine tenths of the units of every layer never fire. A collapsed layer: one is nearly constant."""
    rng = np.random.default_rng(seed)
    params = jax.tree.map(jnp.array, params)
    last = [layer for layer in network.anatomy.hidden if layer.outgoing[0] in network.anatomy.heads]
    for layer in network.anatomy.hidden if how == "shifted" else last:
        own = at(params["params"], layer.incoming)
        units = own["bias"].shape[0]
        dead = rng.permutation(units) < units * (0.9 if how == "shifted" else 0.95)
        own["bias"] = jnp.where(dead, -1e3, own["bias"])
    return params


@pytest.mark.slow
@pytest.mark.parametrize("how", ["shifted", "collapsed"])
@pytest.mark.parametrize("intervention", ["redo", "regrama", "reset"])
def test_a_dormant_network_recovers_and_a_control_does_not(how: str, intervention: str) -> None:
    """Over 5 seeds, by the loss left after fitting a new target, over that of a new network.

    Recycling helps less than a reset at once: the weights out of a recycled unit begin at 0, and steps relative to the
    size of a layer that is mostly 0 are small.
    """
    agent = make_agent(
        TD3Config((64, 64)), Problem((5,), False, 2, -np.ones(2, np.float32), np.ones(2, np.float32), 100)
    )
    network = agent.networks["critics"]
    batch = batch_of("td3", 128)
    numbers = {"every": 1, "tau": 0.025, "since": None}

    def values(params: Any) -> Any:
        return network.value(network.forward(params, None, batch), batch)

    step = jax.jit(lambda fit, target: advance(fit, values, target))

    def trainability(params: Any, seed: int) -> float:
        target = random_target(values(network.init(jax.random.key(100 + seed))))
        left = []
        for start in (params, network.init(jax.random.key(200 + seed))):
            fit = begin(start, values)
            for _ in range(STEPS + 1):
                fit = step(fit, target)
            left.append(float(fit.least))
        return left[0] / left[1]

    controls, mended_ones = [], []
    for seed in range(5):
        state = agent.init(jax.random.key(seed))
        healthy = trainability(state.critics, seed)
        dormant = make_dormant(state.critics, network, how, seed)
        state = state.__class__(**{**state.__dict__, "critics": dormant})
        passed = losses_of(state, network, batch, jax.random.key(0)).layers
        ratio = float(dormant_ratio(list(scores_by_activity(passed, network.anatomy.hidden).values()), 0.025))
        assert ratio > (0.7 if how == "shifted" else 0.4)
        control = trainability(dormant, seed)
        mended = make(intervention, numbers).apply(state, agent.networks, batch, jax.random.key(seed))
        after = trainability(mended.critics, seed)
        print(f"{how} {intervention} seed {seed}: healthy {healthy:.2f}, dormant {control:.2f}, after {after:.2f}")
        assert 0.5 < healthy < 2
        assert control > 1.5 * healthy
        controls.append(control)
        mended_ones.append(after)
    assert np.mean(mended_ones) < np.mean(controls) * (0.5 if intervention == "reset" else 0.9)
