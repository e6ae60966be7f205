"""Probes: every measure of plasticity, of each of an agent's networks, on the training batch and on a fixed one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from neoteny.agents.agent import Agent, TrainableNetwork
from neoteny.machine.compiled import compiled
from neoteny.measuring.measures import Passed, measure
from neoteny.plasticity import trainability
from neoteny.plasticity.churn import policy_churn, value_churn
from neoteny.plasticity.flax import collect, modules_of, ntk_gram
from neoteny.plasticity.ntk import gram_metrics
from neoteny.plasticity.rank import rank_metrics
from neoteny.remedies.surgery import losses_of
from neoteny.runs.session import Session

Tree = Any
SAMPLES = 128
"""Transitions in a probe batch, at most."""
FIT_PIXELS = 32
"""Stacks of frames that are fitted: convolutions are slow on a CPU."""
NEW_NETWORKS = 4
"""New networks of each kind whose mean loss trainability is relative to: one alone may be a third off."""


class Probes:
    """The compiled measurements of one agent."""

    def __init__(self, agent: Agent, unpack: Callable[..., dict[str, Any]], seed: int) -> None:
        self._networks = agent.networks
        self._unpack = unpack
        self._key = jax.random.fold_in(jax.random.key(seed), 3)
        self._rng = np.random.default_rng([seed, 3])
        self._passes = compiled(self._measure_on_device)
        self._begin = compiled(self._begin_fits)
        self._advance = compiled(self._advance_fits)
        self._init = compiled(lambda key: {name: network.init(key) for name, network in agent.networks.items()})
        self._modules: dict[str, Any] = {}
        self._structure: Any = None

    def measure(self, session: Session, rows: NDArray[Any], pixels: dict[str, NDArray[Any]]) -> dict[str, float]:
        """Every measure, by name: where/network/measure, where is `batch` or `probe`.

        rows, pixels: the training batch, packed, with a leading axis of 1.
        """
        if session.probe is None:
            session.probe = self._draw_probe(session)
        probe = session.probe
        batches = {
            "batch": (rows[:, :SAMPLES], {name: value[:, :SAMPLES] for name, value in pixels.items()}),
            "probe": (probe["rows"], {name: value for name, value in probe.items() if name != "rows"}),
        }
        measures: dict[str, float] = {}
        values: dict[str, NDArray[Any]] = {}
        structure = jax.tree.structure([_params(network, session.state) for network in self._networks.values()])
        if not self._modules or structure != self._structure:  # at first, and when a network has grown
            self._modules = self._find_modules(session.state, *batches["probe"])
            self._structure = structure
        passed = {where: self._passes(session.state, *packed, self._key) for where, packed in batches.items()}
        fits = self._begin_trainability(session, batches["probe"])  # computed while the host finds ranks
        for where, (scalars, arrays) in passed.items():
            measures |= {f"{where}/{name}": float(value) for name, value in jax.device_get(scalars).items()}
            for name, network in self._networks.items():
                measures |= {
                    f"{where}/{name}/{key}": value for key, value in self._on_host(name, network, arrays).items()
                }
                values[name] = np.array(arrays[name]["values"])
        measures |= self._fresh_share(session, batches["batch"], measures)
        measures |= self._trainability(session, fits)
        if session.earlier is not None:
            for name, now in values.items():
                churn = policy_churn if self._networks[name].kind == "policy" else value_churn
                measures[f"probe/{name}/churn"] = float(churn(now, session.earlier[name]))
        session.earlier = values
        return measures

    def _draw_probe(self, session: Session) -> dict[str, NDArray[Any]]:
        positions = self._rng.integers(0, len(session.buffer), SAMPLES)
        drawn = session.buffer.gather(positions)
        return {"rows": drawn.rows[None], **{name: value[None] for name, value in drawn.pixels.items()}}

    def _find_modules(self, state: Tree, rows: Any, pixels: Any) -> dict[str, Any]:
        batch = self._batch(jnp.asarray(rows), pixels)
        return {
            name: modules_of(partial(_forward, network, _params(network, state), state, batch))
            for name, network in self._networks.items()
        }

    def _batch(self, rows: Array, pixels: dict[str, Array]) -> dict[str, Array]:
        return {name: value[0] for name, value in self._unpack(rows, pixels).items()}

    def _measure_on_device(
        self, state: Tree, rows: Array, pixels: dict[str, Array], key: Array
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        batch = self._batch(rows, pixels)
        scalars: dict[str, Array] = {}
        arrays: dict[str, Any] = {}
        for name, network in self._networks.items():
            params = _params(network, state)
            passed = losses_of(state, network, batch, key)
            count = len(passed.values)
            gradients = jax.tree.map(lambda leaf, count=count: leaf / count, passed.gradients)
            measures = measure(Passed(params, gradients, passed.layers, network.anatomy.hidden))
            scalars |= {f"{name}/{key}": value for key, value in measures.items()}
            arrays[name] = self._of_values(network, state, batch)
        return scalars, arrays

    def _of_values(self, network: TrainableNetwork, state: Tree, batch: dict[str, Array]) -> dict[str, Any]:
        """What the kernel needs, of Q1 at the stored action or a fixed projection of the mean action."""

        def project(outputs: Tree) -> Array:
            values = network.value(outputs, batch)
            return values[:, 0] if network.kind == "value" else values @ _direction(values.shape[-1])

        params = _params(network, state)
        passed = collect(params, lambda p: _forward(network, p, state, batch), project)
        values = network.value(_forward(network, params, state, batch), batch)
        features = passed.layers[network.anatomy.heads[0]].inputs
        layers = {"/".join(path): layer for path, layer in passed.layers.items()}
        return {"layers": layers, "features": features, "values": values}

    def _on_host(self, name: str, network: TrainableNetwork, arrays: dict[str, Any]) -> dict[str, float]:
        """Ranks of features and kernel, in float64."""
        own_arrays = arrays[name]
        features = np.asarray(own_arrays["features"], np.float64)
        layers = {tuple(path.split("/")): parts for path, parts in own_arrays["layers"].items()}
        gram = ntk_gram(layers, self._modules[name])
        return {
            **{key: float(value) for key, value in rank_metrics(features)._asdict().items()},
            **{f"ntk_{key}": float(value) for key, value in gram_metrics(gram)._asdict().items()},
        }

    def _fresh_share(self, session: Session, packed: Any, measures: dict[str, float]) -> dict[str, float]:
        """Norm of the newest transitions' gradient x their share of a batch, over that of a batch; SWD, Theorem 3."""
        count = packed[0].shape[1]
        positions = np.arange(count) % len(session.buffer)
        newest = session.buffer.gather(positions)
        share = float(session.buffer.law()[: positions.max() + 1].sum())
        pixels = {name: value[None] for name, value in newest.pixels.items()}
        fresh, _ = self._passes(session.state, newest.rows[None], pixels, self._key)
        return {
            f"batch/{name}/fresh_gradient_share": share
            * float(fresh[f"{name}/gradient_l2"])
            / max(measures[f"batch/{name}/gradient_l2"], 1e-30)
            for name in self._networks
        }

    def _values(self, constants: dict[str, Tree], state: Tree, packed: Any) -> dict[str, Callable[[Tree], Array]]:
        """The values of each network, with these constants, as functions of its trained parameters."""
        batch = self._batch(*packed)

        def values(network: TrainableNetwork, params: Tree) -> Array:
            outputs = network.forward({**constants[network.name], "params": params}, state, batch)
            return network.value(outputs, batch)

        return {name: partial(values, network) for name, network in self._networks.items()}

    def _begin_fits(
        self, variables: dict[str, Tree], state: Tree, packed: Any
    ) -> tuple[dict[str, trainability.Fit], dict[str, Array]]:
        new = {name: network.init(self._key) for name, network in self._networks.items()}
        present, random = self._values(variables, state, packed), self._values(new, state, packed)
        fits = {name: trainability.begin(own["params"], present[name]) for name, own in variables.items()}
        return fits, {name: trainability.random_target(random[name](own["params"])) for name, own in new.items()}

    def _advance_fits(
        self, fits: dict[str, trainability.Fit], targets: dict[str, Array], variables: Tree, state: Tree, packed: Any
    ) -> dict[str, trainability.Fit]:
        values = self._values(variables, state, packed)
        return {name: trainability.advance(fit, values[name], targets[name]) for name, fit in fits.items()}

    def _fit(self, variables: dict[str, Tree], state: Tree, packed: Any) -> dict[str, trainability.Fit]:
        """Fits of a random target, from these variables of each network; still to be waited for."""
        fits, targets = self._begin(variables, state, packed)
        for _ in range(trainability.STEPS + 1):
            fits = self._advance(fits, targets, variables, state, packed)
        return fits

    def _begin_trainability(self, session: Session, packed: Any) -> dict[str, trainability.Fit]:
        if packed[1]:
            packed = (packed[0][:, :FIT_PIXELS], {name: value[:, :FIT_PIXELS] for name, value in packed[1].items()})
        if session.new_fit is None:
            keys = jax.random.split(jax.random.fold_in(self._key, 1), NEW_NETWORKS)
            new = [self._fit(self._init(key), session.state, packed) for key in keys]
            session.new_fit = {name: float(np.mean([fits[name].least for fits in new])) for name in self._networks}
        present = {name: getattr(session.state, network.name).params for name, network in self._networks.items()}
        return self._fit(present, session.state, packed)

    def _trainability(self, session: Session, fits: dict[str, trainability.Fit]) -> dict[str, float]:
        """The loss left from the present weights, over the mean of that from new ones."""
        assert session.new_fit is not None
        new = session.new_fit
        return {f"probe/{name}/trainability": float(fit.least) / new[name] for name, fit in fits.items()}


def _params(network: TrainableNetwork, state: Tree) -> Tree:
    """The trained parameters of a network."""
    return getattr(state, network.name).params["params"]


def _forward(network: TrainableNetwork, params: Tree, state: Tree, batch: dict[str, Array]) -> Tree:
    """The outputs of a network with these trained parameters; its constants are those of the state."""
    return network.forward({**getattr(state, network.name).params, "params": params}, state, batch)


def _direction(size: int) -> NDArray[np.float32]:
    """A fixed random unit vector."""
    drawn = np.random.default_rng(size).normal(size=size)
    return (drawn / np.linalg.norm(drawn)).astype(np.float32)
