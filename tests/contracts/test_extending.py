"""Where do I add ...? What docs/architecture.md says is done here, for one of each, as an extension would do it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array
from jax.random import key_data

import neoteny
from neoteny import commands
from neoteny.agents import Agent, Learner, NetworkState, Problem, Remedy, TrainableNetwork, UpdateReport, check_state
from neoteny.agents import configs as agent_configs
from neoteny.agents import registry as agent_registry
from neoteny.agents.agent import squared_errors, td_target
from neoteny.agents.learner import many_updates
from neoteny.cli import main
from neoteny.measuring import measures
from neoteny.networks import MLP, ActionValues, anatomy
from neoteny.remedies import REMEDIES, Injection, RemedyConfig
from neoteny.remedies.config import each
from neoteny.remedies.surgery import change
from neoteny.training import PlasticityConfig, ReplayConfig, TD3Config, TrainConfig

TINY = TD3Config((16, 16), batch_size=16, learning_starts=100)


def tiny(**options: Any) -> TrainConfig:
    known: dict[str, Any] = {
        "agent": TINY,
        "replay": ReplayConfig("swd", decay_steps=200, capacity=1_000),
        "plasticity": PlasticityConfig(0),
        "total_timesteps": 300,
        "eval_every": 0,
    }
    return TrainConfig("Pendulum-v1", **{**known, **options})


def metrics_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@dataclass(frozen=True)
class L2(RemedyConfig):
    """A penalty on the size of all weights."""

    name: ClassVar = "test-l2"
    prefix: ClassVar = "test_l2"
    kind: ClassVar = "penalty"
    strength: float = 1e-2
    """What the sum of squares is multiplied by."""

    def build(self, planned_updates: int) -> Remedy:
        return Remedy(self.name, penalty=lambda params, outputs, memory, step: self.strength * _squares(params))


@dataclass(frozen=True)
class Momentum(RemedyConfig):
    """Another optimiser than the agent's own."""

    name: ClassVar = "test-momentum"
    prefix: ClassVar = "test_momentum"
    kind: ClassVar = "optimiser"

    def build(self, planned_updates: int) -> Remedy:
        return Remedy(self.name, optimiser=lambda network: optax.sgd(1e-4, momentum=0.9))


@dataclass(frozen=True)
class KeepNorm(RemedyConfig):
    """A projection after every step: all weights together keep the size that they began with, which it remembers."""

    name: ClassVar = "test-keep-norm"
    prefix: ClassVar = "test_keep_norm"
    kind: ClassVar = "projection"

    def build(self, planned_updates: int) -> Remedy:
        def project(own: NetworkState, memory: Any, step: Any) -> tuple[NetworkState, Any]:
            params = own.params["params"]
            scale = jnp.sqrt(memory["size"] / _squares(params))
            params = jax.tree.map(lambda leaf: leaf * scale, params)
            own = replace(own, params={**own.params, "params": params})
            return own, {**memory, "steps": memory["steps"] + 1}

        def remember(network: TrainableNetwork, params: Any, key: Array) -> Any:
            return {"size": _squares(params), "steps": jnp.int32(0)}

        return Remedy(self.name, memory=remember, after_step=project)


@dataclass(frozen=True)
class Halve(RemedyConfig):
    """Surgery every so many updates: the weights are halved."""

    name: ClassVar = "test-halve"
    prefix: ClassVar = "test_halve"
    every: int = 50
    """Updates between two."""

    def build(self, planned_updates: int) -> Remedy:
        def halved(params: Any, fresh: Any) -> tuple[Any, Any]:
            everything = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), params)
            return jax.tree.map(lambda leaf: leaf / 2, params), everything

        return Remedy(
            self.name,
            surgery=lambda network, own, state, batch, key: change(network, own, key, halved, restart=False),
            done=each(self.every),
        )


KINDS = {"penalty": L2, "optimiser": Momentum, "after a step": KeepNorm, "surgery": Halve}


def _squares(params: Any) -> Any:
    return sum((leaf**2).sum() for leaf in jax.tree.leaves(params))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS.values():  # the one line in remedies/registry.py
        monkeypatch.setitem(REMEDIES, kind.name, f"{__name__}:{kind.__name__}")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_remedy_of_each_kind_resumes_to_the_same_bits(kind: str, tmp_path: Path) -> None:
    """Flags, the id, the checkpoint and what it remembers follow from its one file."""
    config = KINDS[kind]()
    run = neoteny.train(tiny(remedies=(config,)), out=tmp_path / "run", quiet=True)
    neoteny.resume(run, steps=400, quiet=True)
    whole = neoteny.train(tiny(remedies=(config,), total_timesteps=400), out=tmp_path / "whole", quiet=True)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    plain = neoteny.train(tiny(total_timesteps=400), out=tmp_path / "plain", quiet=True)
    last = [metrics_of(path)[-1]["critic_loss"] for path in (whole, plain)]
    assert last[0] != last[1]
    assert tiny(remedies=(config,)).run_id() != tiny().run_id()
    assert TrainConfig.from_json(tiny(remedies=(config,)).to_json()).remedies == (config,)
    moments = [line["updates"] for line in metrics_of(whole) if line.get("remedy") == config.name]
    assert moments == ([50, 100, 150, 200, 250, 300] if kind == "surgery" else [])


def test_a_remedys_settings_are_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "td3", "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--test-l2-strength FLOAT What the sum of squares is multiplied by (0.01)" in shown


def test_a_penalty_of_strength_0_changes_no_bit(tmp_path: Path) -> None:
    none = neoteny.train(tiny(), out=tmp_path / "none", quiet=True)
    zero = neoteny.train(tiny(remedies=(L2(0.0),)), out=tmp_path / "zero", quiet=True)
    assert (none / "metrics.jsonl").read_bytes() == (zero / "metrics.jsonl").read_bytes()


@dataclass(frozen=True)
class DQNConfig(agent_configs.Facts):
    """DQN without the double estimator: an agent of somebody else."""

    name: ClassVar = "test-dqn"
    discrete: ClassVar = True
    pixels: ClassVar = False
    usual_steps: ClassVar = 1_000
    usual_decay_steps: ClassVar = 500
    usual_eval_every: ClassVar = 0
    one_thread: ClassVar = True
    widths: tuple[int, ...] = (16,)
    """Hidden layers."""
    gamma: float = 0.99
    """The discount."""
    batch_size: int = 16
    """Transitions in each update."""
    learning_starts: int = 100
    """Steps before the first update."""
    utd: float = 1.0
    """Updates for each step."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DQNState:
    """Everything DQN needs to go on."""

    values: NetworkState
    acting: Array


def make_dqn(config: DQNConfig, problem: Problem, network: Any = None, remedies: Any = ()) -> Agent:
    module = ActionValues(network or MLP(config.widths), problem.num_actions)
    learner = Learner(remedies)

    def loss(values: Array, state: DQNState, batch: dict[str, Array], key: Array) -> Any:
        chosen = jnp.take_along_axis(values, batch["action"][:, None], axis=1)[:, 0]
        best = learner.apply(module, state.values.target, batch["next_obs"]).max(axis=1)
        return squared_errors(chosen[None], td_target(batch, config.gamma, best))

    values = TrainableNetwork(
        "values",
        "value",
        anatomy(module),
        init=lambda key: module.init(key, jnp.zeros((1, *problem.obs_shape))),
        optimiser=optax.adam(1e-3),
        forward=lambda params, state, batch: learner.apply(module, params, batch["obs"]),
        loss=loss,
        value=lambda values, batch: jnp.take_along_axis(values, batch["action"][:, None], axis=1),
    )

    def policy(params: Any, obs: Array) -> Array:
        return learner.apply(module, params, obs).argmax(axis=-1)

    def init(key: Array) -> DQNState:
        first, second = jax.random.split(key)
        return DQNState(learner.begin(values, first), key_data(second))

    def update_once(state: DQNState, batch: dict[str, Array]) -> tuple[DQNState, UpdateReport]:
        state, cost, told, finite = learner.step(values, state, batch, state.acting)
        own = state.values
        target = jax.tree.map(lambda old, new: old + 0.01 * (new - old), own.target, own.params)
        state = replace(state, values=replace(own, target=target))
        return state, UpdateReport({"critic_loss": cost, "q": told["q"]}, told["errors"], finite)

    return Agent(
        init,
        lambda params, acting, obs, step: (policy(params, obs), acting),
        many_updates(update_once),
        policy,
        lambda params, obs, key: policy(params, obs),
        lambda state: state.values.params,
        {"values": values},
    )


@pytest.fixture
def dqn(monkeypatch: pytest.MonkeyPatch) -> DQNConfig:
    monkeypatch.setitem(agent_configs.AGENTS, "test-dqn", DQNConfig)
    monkeypatch.setitem(agent_registry.MAKERS, DQNConfig, make_dqn)
    return DQNConfig()


@pytest.mark.slow
def test_an_agent_is_trained_measured_remedied_and_resumed(dqn: DQNConfig, tmp_path: Path) -> None:
    def config(steps: int) -> TrainConfig:
        return replace(
            tiny(agent=dqn, total_timesteps=steps, plasticity=PlasticityConfig(100), remedies=(Halve(), Injection(90))),
            env="CartPole-v1",
        )

    run = neoteny.train(config(300), out=tmp_path / "run", quiet=True)
    neoteny.resume(run, steps=400, quiet=True)
    whole = neoteny.train(replace(config(400), remedies=config(300).remedies), out=tmp_path / "whole", quiet=True)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert any("probe/values/trainability" in line for line in metrics_of(run))


def test_a_state_that_breaks_the_contract_is_refused(dqn: DQNConfig) -> None:
    agent = make_dqn(dqn, Problem((4,), False, 2, None, None, 100))
    state = agent.init(jax.random.key(0))
    check_state(state, agent.networks)

    @dataclass(frozen=True)
    class WithoutActing:
        values: NetworkState

    with pytest.raises(TypeError, match="must have the field acting"):
        check_state(WithoutActing(state.values), agent.networks)
    with pytest.raises(TypeError, match="must have a NetworkState in the field values, got ndarray"):
        check_state(replace(state, values=np.zeros(1)), agent.networks)
    with pytest.raises(TypeError, match="must have a target exactly if has_target"):
        check_state(replace(state, values=replace(state.values, target=None)), agent.networks)


def test_a_measure_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def largest(passed: measures.Passed) -> Array:
        return jnp.stack([jnp.abs(leaf).max() for leaf in jax.tree.leaves(passed.params)]).max()

    monkeypatch.setitem(measures.MEASURES, "largest", largest)
    run = neoteny.train(tiny(plasticity=PlasticityConfig(100), total_timesteps=120), out=tmp_path / "run", quiet=True)
    line = next(line for line in metrics_of(run) if "probe/actor/largest" in line)
    assert line["probe/actor/largest"] > 0


class Wide(nn.Module):
    """A network of somebody else."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return jnp.tanh(nn.Dense(24)(x))


def test_a_network_is_a_module(tmp_path: Path) -> None:
    run = neoteny.train(tiny(total_timesteps=120), out=tmp_path / "run", network=Wide(), quiet=True)
    neoteny.load_policy(run, network=Wide())


def test_a_command_is_a_module_and_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Hello:
        @staticmethod
        def main(argv: list[str]) -> int:
            print("hello", *argv)
            return 0

    monkeypatch.setitem(commands.COMMANDS, "hello", "say hello")
    monkeypatch.setitem(sys.modules, "neoteny.commands.hello", Hello)
    assert main(["hello", "you"]) == 0
    assert capsys.readouterr().out == "hello you\n"
    assert main(["help"]) == 0
    assert "hello               say hello" in capsys.readouterr().out
