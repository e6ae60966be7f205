"""Continual backprop beside a slow twin on plain arrays: which units it replaces and when, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import neoteny
from neoteny.agents.agent import TrainableNetwork, polyak
from neoteny.agents.learner import Learner
from neoteny.agents.operating import operate
from neoteny.errors import UsageError
from neoteny.remedies import ContinualBackprop, ReDo, Reset
from neoteny.remedies.surgery import at
from slow_networks import float64, inputs_of, through_trunk
from small_agents import RUNS, agent_of, batch_of, compilations, ends_the_same, moments, run_with, trained

RATE = 0.0503
"""So that no sum of it is near a whole number within these tests, where float32 and float64 would differ."""


class Twin:
    """Continual backprop on plain arrays, one unit at a time."""

    def __init__(self, units: dict[Any, int], maturity: int) -> None:
        self.maturity = maturity
        self.utility = {path: [0.0] * count for path, count in units.items()}
        self.age = {path: [0] * count for path, count in units.items()}
        self.owed = dict.fromkeys(units, 0.0)

    def update(self, layer: Any, params: Any, inputs: Any) -> list[int]:
        """The units of a layer that one update replaces. inputs: what the layer's readers are given."""
        path = layer.incoming
        utility, age = self.utility[path], self.age[path]
        kernels = [np.asarray(at(params, reader)["kernel"], np.float64) for reader in layer.outgoing]
        rows = kernels[0].shape[-2]
        for unit in range(len(age)):
            contributions = []
            for row in range(unit, rows, len(age)):  # one, unless it is a channel that is read flat
                activity = np.abs(inputs[..., row]).mean()
                weights = np.concatenate([kernel[..., row, :].ravel() for kernel in kernels])
                contributions.append(activity * np.abs(weights).mean())
            age[unit] += 1
            utility[unit] = 0.99 * utility[unit] + 0.01 * np.mean(contributions)
        eligible = [unit for unit in range(len(age)) if age[unit] > self.maturity]
        self.owed[path] += RATE * len(eligible)
        count = int(self.owed[path])
        self.owed[path] -= count
        replaced = sorted(eligible, key=lambda unit: (utility[unit] / (1 - 0.99 ** age[unit]), unit))[:count]
        for unit in replaced:
            utility[unit], age[unit] = 0.0, 0
        return replaced


def passed_through(name: str, network: TrainableNetwork, state: Any, batch: dict[str, Any]) -> dict[Any, Any]:
    """What the readers of each hidden layer are given, by NumPy, by the layer's path."""
    params = float64(getattr(state, network.name).params["params"])
    x = inputs_of(name, network, state, batch)
    return {
        (trunk, *path): value
        for trunk in params
        if trunk.startswith("trunk")
        for path, value in through_trunk(params[trunk], x)[2].items()
    }


def expected(own: Any, fresh: Any, replaced: dict[Any, list[int]], network: TrainableNetwork) -> list[Any]:
    """Parameters, target and both moments of a network after an optimiser's step, with these units replaced."""
    trees = [own.params["params"], None if own.target is None else own.target["params"]]
    trees += [moments(own.opt)[0].mu, moments(own.opt)[0].nu]
    zeros = jax.tree.map(np.zeros_like, fresh)
    results = []
    for tree, new in zip(trees, [fresh, fresh, zeros, zeros], strict=True):
        tree = jax.tree.map(lambda leaf: np.array(leaf), tree)
        results.append(tree)
        for layer in network.anatomy.hidden if tree is not None else ():
            for unit in replaced[layer.incoming]:
                at(tree, layer.incoming)["kernel"][..., unit] = at(new, layer.incoming)["kernel"][..., unit]
                at(tree, layer.incoming)["bias"][unit] = at(new, layer.incoming)["bias"][unit]
        for layer in network.anatomy.hidden if tree is not None else ():
            for unit in replaced[layer.incoming]:
                for reader in layer.outgoing:
                    at(tree, reader)["kernel"][..., unit :: len(at(tree, layer.incoming)["bias"]), :] = 0.0
    return results


def steps_beside_the_twin(name: str, which: str, updates: int, maturity: int, size: int = 32) -> list[int]:
    """Train one network beside its twin; how many units each update replaced."""
    remedy = ContinualBackprop(RATE, maturity).build(updates)
    agent = agent_of(name, (remedy,))
    network = agent.networks[which]
    state = agent.init(jax.random.key(0))

    @jax.jit
    def both(state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        """The network after a step without the remedy, and after one with it; then the target moves."""

        def follow(state: Any, loss: Any, told: Any) -> Any:
            own = getattr(state, which)
            return replace(state, **{which: polyak(own, 0.05)}) if network.has_target else state

        return tuple(
            getattr(Learner(remedies).step(network, state, batch, key, follow)[0], which)
            for remedies in ((), (remedy,))
        )

    init = jax.jit(network.init)
    memory = getattr(state, which).memory[remedy.name]
    twin = Twin({path: len(age) for path, age in memory["age"].items()}, maturity)
    counts, draws = [], []
    for index in range(updates):
        batch = batch_of(name, size, seed=index)
        key = jax.random.split(memory["key"])[1]
        plain, own = both(state, batch, jax.random.fold_in(jax.random.key(1), index))
        inputs = passed_through(name, network, state, batch)
        # The weights are those after the optimiser's step, the activations those of the step.
        replaced = {
            layer.incoming: twin.update(layer, plain.params["params"], inputs[layer.incoming])
            for layer in network.anatomy.hidden
        }
        memory = own.memory[remedy.name]
        for path, units in replaced.items():
            assert sorted(units) == np.flatnonzero(memory["age"][path] == 0).tolist(), (index, path)
            np.testing.assert_array_equal(memory["age"][path], twin.age[path])
            np.testing.assert_allclose(memory["utility"][path], twin.utility[path], rtol=2e-4, atol=1e-8)
            np.testing.assert_allclose(memory["owed"][path], twin.owed[path], atol=1e-3)
        results = [own.params["params"], None if own.target is None else own.target["params"]]
        results += [moments(own.opt)[0].mu, moments(own.opt)[0].nu]
        fresh = jax.tree.map(np.asarray, init(key)["params"])
        jax.tree.map(np.testing.assert_array_equal, results, expected(plain, fresh, replaced, network))
        assert int(moments(own.opt)[0].count) == index + 1  # Adam's count goes on
        counts.append(sum(map(len, replaced.values())))
        if counts[-1]:
            draws.append(at(fresh, network.anatomy.hidden[0].incoming)["kernel"].tobytes())
        state = replace(state, **{which: own})
    assert len(set(draws)) == len(draws)  # each time is new
    return counts


@pytest.mark.parametrize("which", ["critics", "actor"])
def test_td3_replaces_the_units_that_the_twin_does(which: str) -> None:
    counts = steps_beside_the_twin("td3", which, updates=240, maturity=20)
    assert sum(counts[:20]) == 0  # nobody is mature
    assert min(counts) == 0
    assert max(counts) > 1
    assert sum(counts) > 60


@pytest.mark.parametrize(("name", "which"), [("sac", "critics"), ("sac", "actor"), ("ddqn", "critics")])
def test_so_do_other_agents(name: str, which: str) -> None:
    counts = steps_beside_the_twin(name, which, updates=12, maturity=2)
    assert sum(counts) > 5


def test_so_do_channels() -> None:
    counts = steps_beside_the_twin("pixels", "critics", updates=5, maturity=1, size=4)
    assert counts[0] == 0
    assert sum(counts) > 8


def test_what_somebody_else_renews_is_young_again() -> None:
    """Units that another's surgery gave new weights; not those that only lost what they read of such a unit."""
    cbp, redo = ContinualBackprop(RATE, 100).build(100), ReDo(tau=0.3)
    agent, state = trained("td3", remedies=(cbp,))
    remedies = (redo.build(100), cbp)
    after = operate(remedies[0], remedies, agent, state, batch_of("td3"), jax.random.key(1))
    for network in agent.networks.values():
        was, own = getattr(state, network.name), getattr(after, network.name)
        for layer in network.anatomy.hidden:
            path = layer.incoming
            new = np.asarray(at(own.params["params"], path)["bias"] != at(was.params["params"], path)["bias"])
            assert 0 < new.sum() < len(new)
            before, memory = was.memory[cbp.name], own.memory[cbp.name]
            np.testing.assert_array_equal(memory["age"][path], np.where(new, 0, before["age"][path]))
            np.testing.assert_array_equal(memory["utility"][path], np.where(new, 0, before["utility"][path]))
            assert (np.asarray(before["age"][path]) > 0).all()
    for reset, restarts in ((Reset(), True), (Reset(from_="head"), False)):
        remedies = (reset.build(100), cbp)
        after = operate(remedies[0], remedies, agent, state, {}, jax.random.key(1))
        for age in after.critics.memory[cbp.name]["age"].values():
            assert (np.asarray(age) == 0).all() == restarts


@pytest.mark.slow
@pytest.mark.parametrize("name", ["td3", "ddqn"])
def test_a_run_is_compiled_once_and_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    """Of these; tests/faults has it for SAC."""
    remedies = (ContinualBackprop(0.05, 20), ReDo(every=70))
    run = run_with(tmp_path, *RUNS[name], *remedies, steps=200)
    neoteny.resume(run, steps=260, quiet=True)
    whole = run_with(tmp_path, *RUNS[name], *remedies, name="whole", steps=260)
    assert ends_the_same(run, whole)
    assert compilations(run) == compilations(whole) == 1
    without = run_with(tmp_path, *RUNS[name], remedies[1], name="without", steps=260)
    assert (without / "metrics.jsonl").read_bytes() != (whole / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"rate": 0.0}, r"--cbp-rate must be in \(0, 1\], got 0.0"),
        ({"rate": 1.5}, r"--cbp-rate must be in \(0, 1\], got 1.5"),
        ({"maturity": -1}, "--cbp-maturity must be >= 0, got -1"),
        ({"decay": 1.0}, r"--cbp-decay must be in \[0, 1\), got 1.0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ContinualBackprop(**numbers)
