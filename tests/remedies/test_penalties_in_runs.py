"""Penalties beside other remedies: what they remember follows surgery, and runs with them resume to the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neoteny
from neoteny.agents.configs import DDQNConfig, SACConfig
from neoteny.agents.learner import Step, operate
from neoteny.remedies import PFO, Chain, Injection, L2Init, Parseval, ReDo, Reset
from neoteny.remedies.chain import churn
from neoteny.remedies.earlier import EARLIER
from neoteny.runs.inspect import facts_of
from small_agents import TINY, batch_of, run_with, second_batch_of, trained

RUNS: dict[str, tuple[Any, str]] = {
    "td3": (TINY, "Pendulum-v1"),
    "sac": (SACConfig(8, 1, 8, 1, batch_size=16, learning_starts=100), "Pendulum-v1"),
    "ddqn": (DDQNConfig((16, 16), batch_size=16, learning_starts=100, utd=1.0, target_every=20), "CartPole-v1"),
}
TOGETHER: dict[str, tuple[Any, ...]] = {
    "td3": (Chain(critics=1.0, actor=1.0), ReDo(tau=0.1, every=30), L2Init()),
    "sac": (L2Init(), Reset(every=40), PFO(), Parseval()),
    "ddqn": (Chain(values=1.0, after=40, horizon=50), PFO(), L2Init(), Reset(every=70, from_="head")),
}


def remembered(own: Any, name: str) -> Any:
    """The parameters that a remedy remembers of a network."""
    return own.memory[name] if name == "l2-init" else own.memory[name][EARLIER]


def as_surgery_left_it(before: Any, after: Any, memory: Any) -> Any:
    """What is to be remembered: the new number where surgery changed it, else what was."""
    return jax.tree.map(lambda old, new, was: np.where(new != old, new, was), before, after, memory)


@pytest.mark.parametrize(
    ("name", "which", "config"),
    [("td3", "critics", Chain()), ("td3", "critics", L2Init()), ("sac", "actor", PFO())],
    ids=["chain", "l2-init", "pfo"],
)
def test_what_is_remembered_follows_surgery(name: str, which: str, config: Any) -> None:
    remedy = config.build(100)
    agent, state = trained(name, remedies=(remedy,))
    own = getattr(state, which)
    was, memory = own.params["params"], remembered(own, config.name)
    assert any((one != other).any() for one, other in zip(*map(jax.tree.leaves, (was, memory)), strict=True))
    for surgery in (ReDo(tau=0.3), Reset(from_="head"), Reset()):
        remedies = (surgery.build(100), remedy)
        new = getattr(operate(remedies[0], remedies, agent, state, batch_of(name), jax.random.key(1)), which)
        expected = as_surgery_left_it(was, new.params["params"], memory)
        assert any((one != other).any() for one, other in zip(*map(jax.tree.leaves, (expected, memory)), strict=True))
        jax.tree.map(np.testing.assert_array_equal, remembered(new, config.name), expected)


def test_the_earlier_network_has_the_constants_of_injection() -> None:
    """CHAIN compares the whole outputs h + h1 - h2, of now and of one update ago."""
    chain, injection = Chain(critics=1.0).build(100), Injection(at=3).build(100)
    remedies = (chain, injection)
    agent, state = trained("td3", remedies=remedies)
    state = operate(injection, remedies, agent, state, {}, jax.random.key(3))
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


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_strengths_of_0_change_no_bit(name: str, tmp_path: Path) -> None:
    agent, env = RUNS[name]
    none = run_with(tmp_path, agent, env, name="none", steps=200)
    nothing = (Chain(0.0, 0.0, 0.0), PFO(0.0), L2Init(0.0), Parseval(0.0))
    zero = run_with(tmp_path, agent, env, *nothing, name="zero", steps=200)
    assert facts_of(none)["checkpoint"]["digests"] == facts_of(zero)["checkpoint"]["digests"]
    assert (none / "metrics.jsonl").read_bytes() == (zero / "metrics.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_compiled_once_and_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    agent, env = RUNS[name]
    run = run_with(tmp_path, agent, env, *TOGETHER[name], steps=180)
    neoteny.resume(run, steps=240, quiet=True)
    whole = run_with(tmp_path, agent, env, *TOGETHER[name], name="whole", steps=240)
    assert facts_of(run)["checkpoint"]["digests"] == facts_of(whole)["checkpoint"]["digests"]
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    for path in (run, whole):
        timing = [json.loads(line) for line in (path / "timing.jsonl").read_text().splitlines()]
        assert timing[-1]["compilations"]["update"] == 1
