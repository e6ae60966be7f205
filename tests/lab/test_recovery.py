"""The experiment on recovery: units are silent as it says, and it tells a remedy that helps from none."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from neoteny.cli import main
from neoteny.lab.recovery import agent_under, dormant, recover, relearning, silenced, sooner, transitions
from neoteny.remedies import ContinualBackprop, ReDo, Reset
from neoteny.remedies.surgery import at


def hidden_by_hand(kernels: list[tuple[np.ndarray, np.ndarray]], inputs: np.ndarray) -> list[np.ndarray]:
    """The activations of an MLP's hidden layers, by plain products."""
    layers = []
    for kernel, bias in kernels:
        inputs = np.maximum(inputs @ np.asarray(kernel) + np.asarray(bias), 0)
        layers.append(inputs)
    return layers


def test_silenced_units_never_fire_and_the_others_do() -> None:
    agent, data = agent_under(()), transitions(1)
    state = silenced(agent, agent.init(jax.random.key(0)), data, 0.9, seed=1)
    own = [at(state.actor.params["params"], layer.incoming) for layer in agent.networks["actor"].anatomy.hidden]
    kernels = [(layer["kernel"], layer["bias"]) for layer in own]
    for activity in hidden_by_hand(kernels, data["obs"]):
        assert (activity.max(axis=0) == 0).sum() == 58  # of 64: the 57.6 of 0.9, rounded up
    jax.tree.map(np.testing.assert_array_equal, state.actor.params, state.actor.target)
    assert dormant(agent, state, data) > 0.85


def test_a_share_of_0_changes_nothing() -> None:
    agent, data = agent_under(()), transitions(1)
    state = agent.init(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, silenced(agent, state, data, 0.0, seed=1), state)
    assert relearning(agent, state, data, seed=1) < 0.2  # a new network learns


def test_it_tells_a_remedy_from_none() -> None:
    none, reset = (recover(remedy, seeds=1, updates=300) for remedy in (None, Reset(every=100)))
    assert none.dormant[0] > 0.85
    assert reset.dormant[0] < 0.2
    assert reset.relearning[0] < 0.5 * none.relearning[0]


def test_numbers_let_a_remedy_act_and_are_otherwise_its_own() -> None:
    assert sooner("reset") == Reset(every=2_000)
    assert sooner("redo") == ReDo()
    assert sooner("continual-backprop") == ContinualBackprop(rate=0.01, maturity=500)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["lab", "recovery", "--remedy", "redo", "--seeds", "1", "--updates", "10"]) == 0
    table = capsys.readouterr().out
    assert [line.split("  ")[0] for line in table.splitlines()[3:7]] == [
        "a new network",
        "never silenced",
        "no remedy",
        "redo",
    ]
    assert main(["lab", "recovry"]) == 2
    assert capsys.readouterr().err == "neoteny lab: there is no experiment 'recovry'; did you mean recovery?\n"
    assert main(["lab", "recovery", "--seeds", "0"]) == 2
    assert "--seeds must be >= 1, got 0" in capsys.readouterr().err
