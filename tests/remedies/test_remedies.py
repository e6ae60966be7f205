"""Remedies by surgery: what they change, what they leave alone to the bit, and that they compose with every agent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import neoteny
from neoteny.agents.agent import TrainableNetwork
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.networks import HiddenLayer
from neoteny.plasticity.neurons import dormant_ratio
from neoteny.plasticity.trainability import STEPS, advance, begin, random_target
from neoteny.remedies import Injection, ReDo, ReGraMa, Reset, ShrinkPerturb
from neoteny.remedies.recycling import recycle, scores_by_activity
from neoteny.remedies.registry import from_settings
from neoteny.remedies.reset import layer_names
from neoteny.remedies.shrink_perturb import shrink_perturb
from neoteny.remedies.surgery import at, cleared, losses_of
from neoteny.runs.inspect import facts_of
from neoteny.runs.records import read_metrics
from neoteny.settings.config import PlasticityConfig, TrainConfig
from small_agents import CONFIGS, TINY, batch_of, moments, operated, params_of, run_with, trained


def with_params(state: Any, network: TrainableNetwork, params: Any) -> Any:
    own = getattr(state, network.name)
    return replace(state, **{network.name: replace(own, params={**own.params, "params": params})})


def outputs(network: TrainableNetwork, state: Any, batch: dict[str, Any]) -> Any:
    return network.forward(getattr(state, network.name).params, state, batch)


def deaden(params: Any, network: TrainableNetwork, units: list[int]) -> Any:
    """Make these units of every hidden layer dead for any data, by their bias."""
    for layer in network.anatomy.hidden:
        bias = at(params, layer.incoming)["bias"]
        at(params, layer.incoming)["bias"] = bias.at[np.array(units)].set(-1e4)
    return params


@pytest.mark.parametrize("remedy", [ReDo(tau=0.0), ReGraMa(tau=0.0)], ids=["redo", "regrama"])
@pytest.mark.parametrize(
    "name", ["td3", "ddqn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sac", "pixels"))]
)
def test_recycling_spares_the_living(name: str, remedy: Any) -> None:
    """Weights and moments of live units keep their bits, and the output on data does not change."""
    agent, state = trained(name)
    batch, units = batch_of(name), [1, 4]
    for network in agent.networks.values():
        params = deaden(jax.tree.map(jnp.array, params_of(state, network)), network, units)
        state = with_params(state, network, params)
    after = jax.jit(lambda s: operated(remedy, agent, s, batch, jax.random.key(1)))(state)
    for network in agent.networks.values():
        before_out, after_out = outputs(network, state, batch), outputs(network, after, batch)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), before_out, after_out)
        old, new = params_of(state, network), params_of(after, network)
        dead_by_layer = flagged_units(state, network, batch)
        mu = moments(getattr(after, network.name).opt)[0].mu
        old_mu = moments(getattr(state, network.name).opt)[0].mu
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


def flagged_units(state: Any, network: TrainableNetwork, batch: dict[str, Any]) -> dict[Any, Any]:
    """Which units are dead on this batch, straight from what passes through the network."""
    passed = losses_of(state, network, batch, jax.random.key(5)).layers
    flagged = {}
    for layer in network.anatomy.hidden:
        z = np.asarray(passed[layer.incoming].outputs)
        flagged[layer.incoming] = (z <= 0).reshape(-1, z.shape[-1]).all(axis=0)
    return flagged


def test_a_flattened_channel_has_a_row_for_every_position() -> None:
    """`repeat` instead of `tile` would zero other rows."""
    agent, state = trained("pixels", 1)
    network = agent.networks["critics"]
    params = params_of(state, network)
    scores = {layer.incoming: jnp.ones(at(params, layer.incoming)["bias"].shape) for layer in network.anatomy.hidden}
    scores[("trunk", "conv_2")] = scores[("trunk", "conv_2")].at[5].set(0.0)
    fresh = network.init(jax.random.key(9))["params"]
    new, changed = recycle(params, fresh, scores, 0.01, network.anatomy.hidden)
    kernel = np.asarray(new["trunk"]["layer_0"]["dense"]["kernel"])
    zero = np.flatnonzero((kernel == 0).all(axis=1))
    np.testing.assert_array_equal(zero, 5 + 64 * np.arange(49))  # 7 x 7 positions, channels last
    count = sum(int(leaf.sum()) for leaf in jax.tree.leaves(changed))
    assert count == 3 * 3 * 64 + 1 + 49 * 16


def differ(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return any(not np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", CONFIGS)
def test_injection_changes_no_output_and_freezes(name: str) -> None:
    injection = Injection(at=1)
    agent, state = trained(name, remedies=(injection.build(100),))
    batch = batch_of(name)
    after = operated(injection, agent, state, batch, jax.random.key(2))
    for network in agent.networks.values():
        a, b = outputs(network, state, batch), outputs(network, after, batch)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), a, b)
    update = jax.jit(agent.update)
    later = after
    for seed in range(4):
        later, report = update(later, {key: value[None] for key, value in batch_of(name, seed=seed).items()})
        assert np.asarray(report.finite).all()
    for network in agent.networks.values():
        was, now = (getattr(s, network.name).params for s in (after, later))
        jax.tree.map(np.testing.assert_array_equal, was["injection"], now["injection"])  # in SAC with weight decay on
        tail = network.anatomy.since(network.anatomy.last_block)
        assert all(differ(at(was["params"], path), at(now["params"], path)) for path in tail[-1:])
        assert differ(was["params"], now["params"])
        for path in tail:
            jax.tree.map(np.testing.assert_array_equal, at(was["params"], path), at(was["injection"]["taken"], path))
            jax.tree.map(
                np.testing.assert_array_equal, at(params_of(state, network), path), at(was["injection"]["kept"], path)
            )
    with pytest.raises(ValueError, match="injected already"):
        operated(injection, agent, after, batch, jax.random.key(2))


def test_after_an_injection_the_trained_tail_is_measured() -> None:
    """Its own gradient at every pre-activation, beside one sample after the other by vmap."""
    injection = Injection(at=1)
    agent, state = trained("td3", remedies=(injection.build(100),))
    batch, network = batch_of("td3"), agent.networks["critics"]
    after = operated(injection, agent, state, batch, jax.random.key(2))
    for seed in range(3):
        after, _ = jax.jit(agent.update)(after, {k: v[None] for k, v in batch_of("td3", seed=seed).items()})
    passed = losses_of(after, network, batch, jax.random.key(5))
    variables = after.critics.params

    def one(params: Any, sample: Any) -> Any:
        alone = {field: value[None] for field, value in sample.items()}
        values = network.forward({**variables, "params": params}, after, alone)
        return (values[:, 0] * weights_of[sample["index"]]).sum()

    # d loss / d Q of each transition, so that the loss of one is its Q's times that
    outputs_all = network.forward(variables, after, batch)
    weights_of = jax.grad(lambda q: network.loss(q, after, batch, jax.random.key(5))[0].sum())(outputs_all).T
    each = jax.vmap(jax.grad(one), in_axes=(None, 0))(
        variables["params"], {**batch, "index": np.arange(len(batch["reward"]))}
    )
    for layer in network.anatomy.hidden:
        np.testing.assert_allclose(
            passed.layers[layer.incoming].deltas, at(each, layer.incoming)["bias"], rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("remedy", [ShrinkPerturb(), Reset()], ids=["shrink-perturb", "reset"])
def test_targets_get_the_same_draw_and_each_time_is_new(name: str, remedy: Any) -> None:
    agent, state = trained(name)
    keep = 0.8 if remedy == ShrinkPerturb() else 0.0
    one, two = (operated(remedy, agent, state, {}, jax.random.key(seed)) for seed in (1, 2))
    for network in agent.networks.values():
        old, new = getattr(state, network.name), getattr(one, network.name)

        def drawn(which: str, new: Any = new, old: Any = old) -> Any:
            return jax.tree.map(lambda after, before: after - keep * before, getattr(new, which), getattr(old, which))

        if network.has_target:
            a, b = drawn("params"), drawn("target")
            for path, leaf in jax.tree_util.tree_leaves_with_path(a):
                if path[-1].key != "scale" or keep == 0.0:
                    np.testing.assert_allclose(leaf, dict(jax.tree_util.tree_leaves_with_path(b))[path], atol=1e-6)
        kernel = network.anatomy.hidden[0].incoming
        first, second = (at(params_of(s, network), kernel)["kernel"] for s in (one, two))
        assert not np.array_equal(first, second)
        for node in moments(new.opt):
            for path, leaf in jax.tree_util.tree_leaves_with_path(node.mu):
                if path[-1].key != "scale" or keep == 0.0:
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
    hidden = [HiddenLayer(("one",), (("two",),))]
    new, changed = recycle(params, fresh, {("one",): jnp.array([1.0, 0.0])}, 0.1, hidden)
    assert new["one"]["kernel"].tolist() == [[1.0, 8.0]]
    assert new["one"]["bias"].tolist() == [3.0, 10.0]
    assert new["two"]["kernel"].tolist() == [[5.0], [0.0]]
    assert changed["two"]["kernel"].tolist() == [[False], [True]]
    adam = optax.adam(1e-3)
    opt = adam.update(params, adam.init(params))[1]
    after = cleared(opt, params, changed, restart=False)
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
    assert sorted(layer_names(agent.networks)) == sorted(names)
    for since in layer_names(agent.networks):
        after = operated(Reset(from_=since), agent, state, {}, jax.random.key(3))
        reached = []
        for network in agent.networks.values():
            old, new = params_of(state, network), params_of(after, network)
            has = since in network.anatomy.names()
            for branch in network.anatomy.branches:
                tail = False
                for path in branch:
                    tail = tail or path[-1] == since or (since == "head" and len(path) == 1)
                    pairs = zip(jax.tree.leaves(at(old, path)), jax.tree.leaves(at(new, path)), strict=True)
                    assert all(np.array_equal(a, b) for a, b in pairs) is not tail, (since, path)
                assert tail is has
            counts = [int(m.count) for m in moments(getattr(after, network.name).opt)]
            assert all(count == 0 for count in counts) is has  # Adam's, too, is left alone where nothing was reset
            reached.append(has)
        assert any(reached)


@pytest.mark.parametrize("name", ["td3", "sac", "ddqn"])
def test_surgery_on_layers_restarts_adams_count_and_recycling_does_not(name: str) -> None:
    agent, state = trained(name)

    def counts(state: Any) -> list[int]:
        return [int(m.count) for n in agent.networks.values() for m in moments(getattr(state, n.name).opt)]

    assert all(count > 0 for count in counts(state))
    for remedy in (Reset(), ShrinkPerturb(), Injection(), ReDo(), ReGraMa()):
        after = operated(remedy, agent, state, batch_of(name), jax.random.key(3))
        expected = counts(state) if remedy in (ReDo(), ReGraMa()) else [0] * len(counts(state))
        assert counts(after) == expected, remedy


def test_reset_from_a_layer_spares_what_is_before() -> None:
    agent, state = trained("td3")
    after = operated(Reset(from_="layer_1"), agent, state, {}, jax.random.key(3))
    for name in ("actor", "critics"):
        old, new = (params_of(s, agent.networks[name]) for s in (state, after))
        for branch in agent.networks[name].anatomy.branches:
            first, *rest = branch
            jax.tree.map(np.testing.assert_array_equal, at(old, first), at(new, first))
            for path in rest:
                kernel = [np.asarray(leaf) for leaf in jax.tree.leaves(at(new, path))]
                assert not all(
                    np.array_equal(a, b) for a, b in zip(kernel, jax.tree.leaves(at(old, path)), strict=True)
                )


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
        ReGraMa(every=60),
        ReDo(every=70),
        ShrinkPerturb(every=80),
        Injection(),
        Reset(every=150),
        probe_every=100,
    )
    surgeries = [line["remedy"] for line in read_metrics(run) if "remedy" in line]
    assert {name: surgeries.count(name) for name in set(surgeries)} == {
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
    remedies = (Injection(at=100), ReDo(every=90), ShrinkPerturb(every=130))
    run = run_with(tmp_path, TINY, "Pendulum-v1", *remedies, probe_every=50)
    neoteny.resume(run, steps=420, quiet=True)
    whole = run_with(tmp_path, TINY, "Pendulum-v1", *remedies, name="whole", steps=420, probe_every=50)
    assert facts_of(run)["checkpoint"]["digests"] == facts_of(whole)["checkpoint"]["digests"]
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_without_injection_the_update_is_compiled_once(tmp_path: Path) -> None:
    run = run_with(tmp_path, TINY, "Pendulum-v1", ReDo(every=50))
    timing = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    assert timing[-1]["compilations"]["update"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"remedy": ("rest",)}, "--remedy must be one of regrama, redo, .*, got 'rest'; did you mean reset"),
        ({"redo_tau": 0.1}, "--redo-tau is for --remedy redo, which is not asked for"),
        ({"remedy": ("reset",), "reset_every": 0}, "--reset-every must be >= 1, got 0"),
        ({"remedy": ("shrink-perturb",), "shrink_lambda": 1.5}, r"--shrink-lambda must be in \[0, 1\], got 1.5"),
        ({"remedy": ("redo", "redo")}, "--remedy redo is given 2 times: give it once"),
    ],
)
def test_bad_numbers_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TrainConfig("X", remedies=from_settings(options.pop("remedy", ()), options))


def test_what_is_no_remedy_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a remedy must be a configuration .* got 'redo'"):
        TrainConfig("X", remedies=("redo",))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--probe-every must be >= 0, got -1"):
        PlasticityConfig(-1)


def test_a_layer_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--reset-from must be one of layer_0, layer_1, head, got 'layer_9'"):
        run_with(tmp_path, TINY, "Pendulum-v1", Reset(from_="layer_9"))


def make_dormant(params: Any, network: TrainableNetwork, how: str, seed: int) -> Any:
    """A shifted bias: nine tenths of the units of every layer never fire. A collapsed layer: one is nearly constant."""
    rng = np.random.default_rng(seed)
    params = jax.tree.map(jnp.array, params)
    last = [layer for layer in network.anatomy.hidden if layer.outgoing[0] in network.anatomy.heads]
    for layer in network.anatomy.hidden if how == "shifted" else last:
        own = at(params, layer.incoming)
        units = own["bias"].shape[0]
        dead = rng.permutation(units) < units * (0.9 if how == "shifted" else 0.95)
        own["bias"] = jnp.where(dead, -1e3, own["bias"])
    return params


@pytest.mark.slow
@pytest.mark.parametrize("how", ["shifted", "collapsed"])
@pytest.mark.parametrize("remedy", [ReDo(), ReGraMa(tau=0.025), Reset()], ids=["redo", "regrama", "reset"])
def test_a_dormant_network_recovers_and_a_control_does_not(how: str, remedy: Any) -> None:
    """Over 5 seeds, by the loss left after fitting a new target, over that of a new network.

    Recycling helps less than a reset at once: the weights out of a recycled unit begin at 0, and steps relative to the
    size of a layer that is mostly 0 are small.
    """
    agent = make_agent(
        TD3Config((64, 64)), Problem((5,), False, 2, -np.ones(2, np.float32), np.ones(2, np.float32), 100)
    )
    network = agent.networks["critics"]
    batch = batch_of("td3", 128)

    def values(params: Any) -> Any:
        return network.value(network.forward({"params": params}, None, batch), batch)

    step = jax.jit(lambda fit, target: advance(fit, values, target))

    def trainability(params: Any, seed: int) -> float:
        target = random_target(values(network.init(jax.random.key(100 + seed))["params"]))
        left = []
        for start in (params, network.init(jax.random.key(200 + seed))["params"]):
            fit = begin(start, values)
            for _ in range(STEPS + 1):
                fit = step(fit, target)
            left.append(float(fit.least))
        return left[0] / left[1]

    controls, mended_ones = [], []
    for seed in range(5):
        state = agent.init(jax.random.key(seed))
        healthy = trainability(params_of(state, network), seed)
        dormant = make_dormant(params_of(state, network), network, how, seed)
        state = with_params(state, network, dormant)
        passed = losses_of(state, network, batch, jax.random.key(0)).layers
        ratio = float(dormant_ratio(list(scores_by_activity(passed, network.anatomy.hidden).values()), 0.025))
        assert ratio > (0.7 if how == "shifted" else 0.4)
        control = trainability(dormant, seed)
        mended = operated(remedy, agent, state, batch, jax.random.key(seed))
        after = trainability(params_of(mended, network), seed)
        print(f"{how} {remedy.name} seed {seed}: healthy {healthy:.2f}, dormant {control:.2f}, after {after:.2f}")
        assert 0.5 < healthy < 2
        assert control > 1.5 * healthy
        controls.append(control)
        mended_ones.append(after)
    assert np.mean(mended_ones) < np.mean(controls) * (0.5 if remedy == Reset() else 0.9)
