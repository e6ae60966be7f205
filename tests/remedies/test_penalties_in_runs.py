"""Penalties beside other remedies: what they remember follows surgery, and runs with them resume to the same bits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neoteny
from neoteny.agents.learner import Step
from neoteny.agents.operating import operate
from neoteny.remedies import PFO, Chain, Injection, L2Init, Parseval, ReDo, Reset
from neoteny.remedies.chain import churn
from neoteny.remedies.earlier import EARLIER
from neoteny.remedies.surgery import at
from small_agents import RUNS, agent_of, batch_of, compilations, ends_the_same, run_with, second_batch_of, trained

TOGETHER: dict[str, tuple[Any, ...]] = {
    "td3": (Chain(critics=1.0, actor=1.0), ReDo(tau=0.1, every=30), L2Init()),
    "sac": (L2Init(), Reset(every=40), PFO(), Parseval()),
    "ddqn": (Chain(values=1.0, after=40, horizon=50), PFO(), L2Init(), Reset(every=70, from_="head")),
}


def differ(one: Any, other: Any) -> bool:
    return any((a != b).any() for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_what_is_remembered_follows_surgery() -> None:
    """It is the new number where surgery changed one, else what it was."""
    remedies = {config.name: config.build(100) for config in (Chain(), PFO(), L2Init())}
    agent = agent_of("sac", tuple(remedies.values()))
    state = jax.jit(agent.init)(jax.random.key(0))
    memory = jax.tree.map(lambda leaf: leaf + 0.01, state.actor.memory)
    params = jax.tree.map(lambda leaf: leaf + 0.02, state.actor.params)  # as if the network had learned
    state = replace(state, actor=replace(state.actor, params=params, memory=memory))
    trees = {"chain": (EARLIER,), "pfo": (EARLIER,), "l2-init": ()}
    for surgery in (ReDo(tau=0.6).build(100), Reset(from_="head").build(100), Reset().build(100)):
        operation = jax.jit(partial(operate, surgery, (surgery, *remedies.values()), agent))
        new = operation(state, batch_of("sac"), jax.random.key(1)).actor
        for name, path in trees.items():
            before, after = at(memory[name], path), at(new.memory[name], path)
            trees_then_now = params["params"], new.params["params"]
            expected = jax.tree.map(lambda old, new, was: np.where(new != old, new, was), *trees_then_now, before)
            assert differ(before, expected)
            jax.tree.map(np.testing.assert_array_equal, after, expected)


def test_the_earlier_network_has_the_constants_of_injection() -> None:
    """CHAIN compares the whole outputs h + h1 - h2, of now and of one update ago."""
    chain, injection = Chain(critics=1.0).build(100), Injection(at=3).build(100)
    remedies = (chain, injection)
    agent, state = trained("td3", remedies=remedies)
    state = jax.jit(partial(operate, injection, remedies, agent))(state, {}, jax.random.key(3))
    update = jax.jit(agent.update)
    network = agent.networks["critics"]
    other = batch_of("td3", seed=50)
    for seed in range(3):
        batch = batch_of("td3", seed=seed) | second_batch_of("td3", remedies, seed=seed + 100)
        before = state.critics.params
        state, report = update(state, {key: value[None] for key, value in batch.items()})
        assert np.asarray(report.finite).all()
        memory = state.critics.memory[chain.name][EARLIER]
        jax.tree.map(np.testing.assert_array_equal, memory, before["params"])
    values = {
        "now": network.forward(state.critics.params, state, other),
        "then": network.forward(before, state, other),
        "without": network.forward({"params": memory}, state, other),
    }
    step = Step(network, state.critics, state, {}, other, {}, jnp.zeros(()), jnp.zeros(()), None, {})
    far = float(churn(state.critics.params["params"], state.critics.memory[chain.name], step))
    assert far == pytest.approx(float(((values["now"] - values["then"]) ** 2).mean(axis=1).sum()), rel=1e-4)
    assert far != pytest.approx(float(((values["now"] - values["without"]) ** 2).mean(axis=1).sum()), rel=1e-1)


@pytest.fixture(scope="module")
def untreated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs without a remedy, each trained when first asked for."""
    folder = tmp_path_factory.mktemp("untreated")

    class Runs(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            self[name] = run_with(folder, *RUNS[name], name=name, steps=200)
            return self[name]

    return Runs()


@pytest.mark.slow
@pytest.mark.parametrize("nothing", [Chain(0.0, 0.0, 0.0), PFO(0.0), L2Init(0.0), Parseval(0.0)], ids=lambda p: p.name)
@pytest.mark.parametrize("name", RUNS)
def test_a_strength_of_0_changes_no_bit(name: str, nothing: Any, untreated: dict[str, Path], tmp_path: Path) -> None:
    assert ends_the_same(run_with(tmp_path, *RUNS[name], nothing, steps=200), untreated[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_compiled_once_and_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    run = run_with(tmp_path, *RUNS[name], *TOGETHER[name], steps=180)
    neoteny.resume(run, steps=240, quiet=True)
    whole = run_with(tmp_path, *RUNS[name], *TOGETHER[name], name="whole", steps=240)
    assert ends_the_same(run, whole)
    assert compilations(run) == compilations(whole) == 1
