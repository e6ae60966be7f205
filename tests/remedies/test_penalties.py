"""Penalties beside slow twins in float64: each value, and each gradient by finite differences of the twin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from neoteny.agents.agent import TrainableNetwork, polyak
from neoteny.agents.learner import Learner, Remedy
from neoteny.errors import UsageError
from neoteny.remedies import PFO, Chain, L2Init, Parseval
from slow_networks import float64, inputs_of, outputs_of, through_trunk
from small_agents import agent_of, batch_of, second_batch_of

SPY = "spy"


class Seen(NamedTuple):
    """A gradient step as a twin sees it; parameters in float64."""

    name: str
    network: TrainableNetwork
    state: Any
    batch: dict[str, Any]
    other: dict[str, Any]
    key: Any
    params: Any
    """Before the step."""
    earlier: Any
    """Before the step before."""
    first: Any
    """When the network was new."""


def chain_twin(config: Chain, params: Any, seen: Seen) -> float:
    x = inputs_of(seen.name, seen.network, seen.state, seen.other)
    now, then = outputs_of(params, x), outputs_of(seen.earlier, x)
    if seen.name in ("ddqn", "pixels"):
        return config.values * np.mean((now - then) ** 2)
    if seen.network.name == "critics":
        return config.critics * sum(np.mean((one - before) ** 2) for one, before in zip(now, then, strict=True))
    if seen.name == "td3":
        return config.actor * size_of_loss(seen) * np.mean((np.tanh(now) - np.tanh(then)) ** 2)
    divergences = kl_by_integration(now[0], log_std(now[1]), then[0], log_std(then[1])).sum(axis=1)
    return config.actor * size_of_loss(seen) * np.mean(np.clip(divergences, 0, 100))


def size_of_loss(seen: Seen) -> float:
    """mean|Q| of TD3, mean|min Q - alpha log pi| of SAC: by the critics, on the first batch."""
    obs = inputs_of(seen.name, seen.network, seen.state, seen.batch)
    outputs = outputs_of(seen.params, obs)
    critics = float64(seen.state.critics.params["params"])
    if seen.name == "td3":
        return np.abs(outputs_of(critics, np.concatenate([obs, np.tanh(outputs)], axis=1))[0]).mean()
    noise = np.asarray(jax.random.normal(seen.key, outputs[0].shape), np.float64)
    drawn = outputs[0] + np.exp(log_std(outputs[1])) * noise
    density = np.exp(-0.5 * noise**2) / np.exp(log_std(outputs[1])) / np.sqrt(2 * np.pi) / (1 - np.tanh(drawn) ** 2)
    values = outputs_of(critics, np.concatenate([obs, np.tanh(drawn)], axis=1)).min(axis=0)
    return np.abs(values - math.exp(float(seen.state.log_alpha)) * np.log(density).sum(axis=1)).mean()


def log_std(raw: Any) -> Any:
    return -5 + 3.5 * (np.tanh(raw) + 1)


def kl_by_integration(mean: Any, log_std: Any, other_mean: Any, other_log_std: Any) -> Any:
    """KL of two Gaussians, of each sample and dimension: the integral of p log(p / q), by the trapezoid rule."""
    z, width = np.linspace(-8, 8, 81, retstep=True)
    x = mean[..., None] + np.exp(log_std)[..., None] * z
    p = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)  # with dx = sigma dz
    log_p = -0.5 * z**2 - log_std[..., None]
    log_q = -0.5 * ((x - other_mean[..., None]) / np.exp(other_log_std)[..., None]) ** 2 - other_log_std[..., None]
    return (p * (log_p - log_q)).sum(axis=-1) * width


def pfo_twin(config: PFO, params: Any, seen: Seen) -> float:
    last = {"sac": ("expand_0",), "pixels": ("layer_0", "dense")}.get(seen.name, ("layer_1", "dense"))
    x = inputs_of(seen.name, seen.network, seen.state, seen.batch)
    own = getattr(seen.state, seen.network.name)
    old = seen.earlier if seen.name == "sac" else float64(own.target["params"])
    now, then = (through_trunk(tree["trunk"], x)[1][last] for tree in (params, old))
    strength = {"pixels": 1.0}.get(seen.name, 10.0) if config.strength is None else config.strength
    return strength * np.mean((now - then) ** 2)


def l2_init_twin(config: L2Init, params: Any, seen: Seen) -> float:
    total = 0.0
    for (path, leaf), begun in zip(leaves_of(params), jax.tree.leaves(seen.first), strict=True):
        if not path[-2].startswith("norm"):
            total += sum((now - then) ** 2 for now, then in zip(leaf.flat, begun.flat, strict=True))
    return config.strength / 2 * total


def parseval_twin(config: Parseval, params: Any, seen: Seen) -> float:
    total = 0.0
    for path, leaf in leaves_of(params):
        if path[-1] == "kernel" and path[0].startswith("trunk"):
            weights = np.moveaxis(leaf, -1, 0).reshape(leaf.shape[-1], -1)  # outputs x inputs
            outputs, inputs = weights.shape
            gram = weights @ weights.T if inputs >= outputs else weights.T @ weights
            total += (64 / outputs) ** 2 * np.linalg.norm(gram - config.scale * np.eye(len(gram)), "fro") ** 2
    return config.strength * total


def leaves_of(params: Any) -> list[tuple[tuple[str, ...], Any]]:
    flat = jax.tree_util.tree_flatten_with_path(params)[0]
    return [(tuple(part.key for part in path), leaf) for path, leaf in flat]


def spy(name: str) -> Remedy:
    """A remedy that only remembers the last step's gradient, and what the remedy called `name` added to the loss."""

    def begin(network: TrainableNetwork, params: Any, key: Any) -> Any:
        return {"grads": jax.tree.map(jnp.zeros_like, params), "penalty": jnp.float32(0)}

    def after_step(own: Any, memory: Any, step: Any) -> Any:
        return own, {"grads": step.grads, "penalty": step.penalties.get(name, jnp.float32(0))}

    return Remedy(SPY, memory=begin, after_step=after_step)


class Beside:
    """An agent's network that learns under a penalty with large steps, its target in pursuit; what the spy saw."""

    def __init__(self, config: Any, name: str, which: str, size: int) -> None:
        self.name, self.which, self.size = name, which, size
        self.remedies = (config.build(100), spy(config.name))
        agent = agent_of(name, self.remedies)
        self.network = replace(agent.networks[which], optimiser=optax.adam(0.003 if name == "pixels" else 0.03))
        state = agent.init(jax.random.key(0))
        # Kernels of three times the size give values of both signs, so that mean|Q| is not |mean Q|.
        critics = jax.tree.map(lambda leaf: 3 * leaf if leaf.ndim == 2 else leaf, state.critics.params)
        state = replace(state, critics=replace(state.critics, params=critics))
        begun = Learner(self.remedies).begin(self.network, jax.random.key(1))
        self.state = replace(state, **{which: begun})
        self.history: list[Any] = []

        def follow(state: Any, loss: Any, told: Any) -> Any:
            own = getattr(state, which)
            return replace(state, **{which: polyak(own, 0.3)}) if self.network.has_target else state

        def both(state: Any, batch: Any, key: Any) -> Any:
            after, loss, _, finite = Learner(self.remedies).step(self.network, state, batch, key, follow)
            plain = Learner(self.remedies[1:]).step(self.network, state, batch, key, follow)[0]
            return after, getattr(plain, which).memory[SPY]["grads"], loss, finite

        self.both = jax.jit(both)

    def step(self, index: int) -> tuple[Seen, float, Any, float]:
        """What a twin sees of one step; the penalty, its gradient, and the loss without it."""
        batch, key = batch_of(self.name, self.size, seed=index), jax.random.fold_in(jax.random.key(2), index)
        other = batch_of(self.name, self.size, seed=index + 100)
        self.history.append(float64(getattr(self.state, self.which).params["params"]))
        earlier = self.history[max(0, index - 1)]
        seen = Seen(self.name, self.network, self.state, batch, other, key, self.history[-1], earlier, self.history[0])
        fields = batch | second_batch_of(self.name, self.remedies, self.size, seed=index + 100)
        self.state, plain, loss, finite = self.both(self.state, fields, key)
        assert finite
        told = getattr(self.state, self.which).memory[SPY]
        gradient = jax.tree.map(lambda with_it, without: with_it - without, float64(told["grads"]), float64(plain))
        return seen, float(told["penalty"]), gradient, float(loss)


def slopes(twin: Callable[[Any], float], params: Any, most: int) -> Any:
    """Central differences for each leaf: the places, at most so many of each leaf, and the slopes there."""
    rng = np.random.default_rng(0)
    params = float64(params)  # a copy, in which one number at a time is another
    for path, leaf in leaves_of(params):
        places = np.arange(leaf.size) if leaf.size <= most else rng.choice(leaf.size, most, replace=False)
        found = []
        for place in places:
            was, ends = leaf.flat[place], []
            for end in (was + 1e-6, was - 1e-6):
                leaf.flat[place] = end
                ends.append(twin(params))
            leaf.flat[place] = was
            found.append((ends[0] - ends[1]) / 2e-6)
        yield path, places, np.array(found)


CASES = {
    "chain": (Chain(critics=30.0, actor=20.0), chain_twin, ["td3 critics", "td3 actor", "sac critics", "sac actor"]),
    "chain ddqn": (Chain(), chain_twin, ["ddqn critics", "pixels critics"]),
    "pfo": (PFO(), pfo_twin, ["td3 actor", "sac actor", "ddqn critics", "pixels critics"]),
    "l2-init": (L2Init(0.5), l2_init_twin, ["td3 critics", "sac actor", "ddqn critics", "pixels critics"]),
    "parseval": (Parseval(0.1), parseval_twin, ["td3 critics", "sac critics", "ddqn critics", "pixels critics"]),
}


@pytest.mark.parametrize(
    ("case", "who"), [(case, who) for case, (_, _, names) in CASES.items() for who in names], ids=str
)
def test_value_and_gradient_are_those_of_the_twin(case: str, who: str) -> None:
    config, twin, _ = CASES[case]
    name, which = who.split()
    pixels = name == "pixels"
    beside = Beside(config, name, which, size=4 if pixels else 16)
    for index in range(3):
        seen, value, gradient, _ = beside.step(index)
        expected = twin(config, seen.params, seen)
        assert value == pytest.approx(expected, rel=1e-5, abs=1e-9)
    assert value > 1e-4
    places_checked = 0
    largest = max(np.abs(leaf).max() for _, leaf in leaves_of(gradient))
    for path, places, found in slopes(lambda params: twin(config, params, seen), seen.params, 4 if pixels else 24):
        own = dict(leaves_of(gradient))[path].flat[places]
        np.testing.assert_allclose(own, found, rtol=1e-5, atol=1e-5 * largest, err_msg=str(path))
        places_checked += np.count_nonzero(found)
    assert places_checked > 10


def test_pfo_leaves_critics_beside_an_actor_alone() -> None:
    beside = Beside(PFO(), "td3", "critics", 8)
    _, value, gradient, _ = beside.step(0)
    assert value == 0
    assert all((leaf == 0).all() for _, leaf in leaves_of(gradient))


def test_the_divergence_of_sac_ends_at_100() -> None:
    distance = agent_of("sac").networks["actor"].distance
    outputs = tuple(jnp.zeros((3, 2)) + start for start in (0.0, 0.5))
    earlier = (jnp.array([[0.0, 0.0], [5.0, 0.0], [1e3, 0.0]]), outputs[1])
    far = np.asarray(distance(outputs, earlier))
    spread = math.exp(2 * log_std(0.5))
    np.testing.assert_allclose(far, [0.0, 25 / spread / 2, 100.0], rtol=1e-5, atol=1e-6)


def test_chains_strength_on_double_dqn_becomes_automatic() -> None:
    """After `after` updates: beta times the mean loss over the mean churn, by plain sums over all that was."""
    config = Chain(values=3.0, beta=0.2, after=4, horizon=6)
    beside = Beside(config, "ddqn", "critics", 16)
    losses: list[float] = []
    churns: list[float] = []

    def mean(numbers: list[float]) -> float:
        weights = [(1 - 1 / 6) ** age for age in range(len(numbers))][::-1]
        return sum(weight * number for weight, number in zip(weights, numbers, strict=True)) / sum(weights)

    strengths = []
    for index in range(9):
        seen, value, _, loss = beside.step(index)
        strengths.append(3.0 if index < 4 else 0.2 * mean(losses) / (mean(churns) + 1e-8))
        churn = chain_twin(replace(config, values=1.0), seen.params, seen)
        assert value == pytest.approx(strengths[-1] * churn, rel=1e-4, abs=1e-9)
        losses.append(loss)
        churns += [churn] if index else []  # the first update has none
    assert len(set(strengths)) == 6
    fixed = Beside(replace(config, beta=0.0), "ddqn", "critics", 16)
    for index in range(6):
        seen, value, _, _ = fixed.step(index)
    assert value == pytest.approx(chain_twin(config, seen.params, seen), rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "numbers", "message"),
    [
        (Chain, {"critics": -0.1}, "--chain-critics must be a finite number >= 0, got -0.1"),
        (Chain, {"beta": float("inf")}, "--chain-beta must be a finite number >= 0, got inf"),
        (Chain, {"horizon": 0}, "--chain-horizon must be >= 1, got 0"),
        (PFO, {"strength": -1.0}, "--pfo-strength must be a finite number >= 0, got -1.0"),
        (L2Init, {"strength": float("nan")}, "--l2-init-strength must be a finite number >= 0, got nan"),
        (Parseval, {"scale": -2.0}, "--parseval-scale must be a finite number >= 0, got -2.0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(kind: Any, numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kind(**numbers)


def test_chain_says_what_it_lacks() -> None:
    network = agent_of("td3").networks["actor"]
    with pytest.raises(UsageError, match="does not know how far apart outputs of the actor are"):
        Chain().check({"actor": replace(network, distance=None)})
    remedies = (Chain().build(10),)
    agent = agent_of("td3", remedies)
    batch = {name: value[None] for name, value in batch_of("td3").items()}
    with pytest.raises(UsageError, match="chain needs a second batch"):
        agent.update(agent.init(jax.random.key(0)), batch)
