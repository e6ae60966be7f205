"""Normalise and project: every norm is what it was at first after a projection, and what is left is left to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest

import neoteny
from neoteny.agents.configs import DDQNConfig, TD3Config
from neoteny.agents.operating import operate
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.remedies import NaP
from neoteny.remedies.nap import follow, project
from neoteny.runs.records import read_metrics
from small_agents import RUNS, TINY, agent_of, batch_of, compilations, ends_the_same, run_with

BOUND = np.ones(2, np.float32)
VALUE_HEADS = {"head_0", "head_1"}


class Normalised(nn.Module):
    """A network of a user's own, with LayerNorm before its one non-linearity."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.relu(nn.LayerNorm(name="norm")(nn.Dense(6, name="dense")(x)))


def own_network(remedy: Any, config: Any = None) -> tuple[Any, Any]:
    """TD3, or another agent, with that network after three updates."""
    discrete = isinstance(config, DDQNConfig)
    problem = Problem((5,), False, 2, None if discrete else -BOUND, None if discrete else BOUND, 100)
    agent = make_agent(config or TD3Config(critic_lr=0.1, actor_lr=0.1), problem, Normalised(), (remedy,))
    state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    for seed in range(3):
        batch = batch_of("ddqn" if discrete else "td3", seed=seed)
        state, _ = update(state, {key: value[None] for key, value in batch.items()})
    return agent, state


def norms(params: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], float]:
    """By NumPy in float64: of each kernel, and of each scale and offset as one vector."""
    found = {}
    for name, part in params.items():
        if isinstance(part, dict):
            found |= norms(part, (*path, name))
        elif name == "kernel":
            found[path] = float(np.sqrt((np.asarray(part, np.float64) ** 2).sum()))
        elif name == "scale":
            both = np.concatenate([np.asarray(part, np.float64), np.asarray(params["bias"], np.float64)])
            found[path] = float(np.sqrt((both**2).sum()))
    return found


def leaves(params: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree.leaves_with_path(params)}


def check_projection(agent: Any, first: Any, before: Any, after: Any, left: set[str]) -> None:
    for network in agent.networks:
        was, new, now = (getattr(state, network) for state in (before, first, after))
        began, grown, held = (norms(own.params["params"]) for own in (new, was, now))
        for path, size in held.items():
            is_left = network == "critics" and path[0] in left
            assert size == pytest.approx(grown[path] if is_left else began[path], rel=1e-6), path
            assert abs(grown[path] / began[path] - 1) > 1e-5, path  # there was something to do
        old_leaves, new_leaves = leaves(was.params["params"]), leaves(now.params["params"])
        for name, leaf in new_leaves.items():
            bias_of_a_dense_layer = name.endswith("['bias']") and "norm" not in name
            untouched = bias_of_a_dense_layer or (network == "critics" and any(head in name for head in left))
            assert np.array_equal(leaf, old_leaves[name]) == untouched, name
            directions = [one / np.linalg.norm(one) for one in (leaf, old_leaves[name])]
            np.testing.assert_allclose(*directions, atol=1e-6, err_msg=name)
        jax.tree.map(np.testing.assert_array_equal, was.opt, now.opt)
        jax.tree.map(np.testing.assert_array_equal, was.target, now.target)
        jax.tree.map(np.testing.assert_array_equal, was.memory, now.memory)


def test_on_td3_with_a_network_of_ones_own_norms_are_exact_and_heads_of_values_untouched() -> None:
    remedy = NaP().build(100)
    agent, state = own_network(remedy)
    NaP().check(agent.networks)
    after = operate(remedy, (remedy,), agent, state, {}, jax.random.key(1))
    check_projection(agent, agent.init(jax.random.key(0)), state, after, VALUE_HEADS)


def test_so_they_are_on_sac_with_simba() -> None:
    remedy = NaP().build(100)
    agent = agent_of("sac", (remedy,))
    NaP().check(agent.networks)
    state = agent.init(jax.random.key(0))
    rng = np.random.default_rng(0)  # as if it had been trained for long
    for network in agent.networks:
        own = getattr(state, network)
        params = jax.tree.map(lambda leaf: leaf + 0.3 * rng.normal(size=leaf.shape), own.params["params"])
        state = replace(state, **{network: replace(own, params={"params": params})})
    after = operate(remedy, (remedy,), agent, state, {}, jax.random.key(1))
    check_projection(agent, agent.init(jax.random.key(0)), state, after, VALUE_HEADS)


def test_the_head_of_double_dqn_is_of_values_too() -> None:
    remedy = NaP().build(100)
    agent, state = own_network(remedy, DDQNConfig(lr=0.1))
    after = operate(remedy, (remedy,), agent, state, {}, jax.random.key(1))
    check_projection(agent, agent.init(jax.random.key(0)), state, after, {"head"})


def test_a_norm_of_0_is_left() -> None:
    params = {"a": {"kernel": np.zeros((2, 2))}, "b": {"kernel": np.ones((2, 2))}, "c": {"kernel": np.ones((2, 2))}}
    after = project(params, {("a",): np.float32(3), ("b",): np.float32(0), ("c",): np.float32(4)})
    assert [np.asarray(after[name]["kernel"]).max() for name in "abc"] == [0, 1, 2]


@pytest.mark.parametrize("share", ["all", "some", "none"])
def test_layers_that_surgery_makes_new_are_held_at_their_new_norm_and_others_at_their_first(share: str) -> None:
    """A layer of which a few units are recycled is held at the norm that it had."""
    agent = agent_of("sac", (NaP().build(100),))
    own = agent.init(jax.random.key(0)).critics
    first, params = own.memory["nap"], jax.tree.map(lambda leaf: 2 * leaf, own.params["params"])
    changed = jax.tree.map(lambda leaf: np.zeros(leaf.shape, bool), params)
    for layer in ("expand_0", "norm_0"):
        for mask in changed["trunk_1"][layer].values():
            mask[..., : {"all": None, "some": 2, "none": 0}[share]] = True
    _, held = follow(replace(own, params={"params": params}), first, changed)
    assert set(held) == set(first)
    for path, size in held.items():
        renewed = share == "all" and path in (("trunk_1", "expand_0"), ("trunk_1", "norm_0"))
        assert float(size) == pytest.approx((2 if renewed else 1) * norms(own.params["params"])[path], rel=1e-6)


def test_it_acts_every_so_many_updates_and_refuses_a_run_without_layernorm(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--remedy nap needs LayerNorm, and the actor has none: add --network layern"):
        run_with(tmp_path, TINY, "Pendulum-v1", NaP())
    with pytest.raises(UsageError, match="--nap-every must be >= 1, got 0"):
        NaP(every=0)
    remedy = NaP(every=50).build(1_000)
    assert [remedy.done(updates) for updates in (49, 50, 99, 100)] == [0, 1, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["td3", "ddqn"])
def test_with_layernorm_a_run_is_compiled_once_and_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    """SAC's own network has LayerNorm: test_optimisers.py has a run of it."""
    agent, env = RUNS[name]
    agent = replace(agent, network="layernorm")
    run = run_with(tmp_path, agent, env, NaP(every=30), steps=170)
    neoteny.resume(run, steps=240, quiet=True)
    whole = run_with(tmp_path, agent, env, NaP(every=30), name="whole", steps=240)
    assert ends_the_same(run, whole)
    assert compilations(run) == compilations(whole) == 1
    assert [line["updates"] for line in read_metrics(run) if line.get("remedy") == "nap"] == [30, 60, 90, 120]
    losses = [line["critic_loss"] for line in read_metrics(whole) if "critic_loss" in line]
    without = run_with(tmp_path, agent, env, name="without", steps=240)
    assert np.isfinite(losses).all()
    assert losses != [line["critic_loss"] for line in read_metrics(without) if "critic_loss" in line]


def test_the_agents_own_networks_without_layernorm_are_refused() -> None:
    for name in ("td3", "ddqn"):
        with pytest.raises(UsageError, match="add --network layernorm"):
            NaP().check(agent_of(name).networks)
