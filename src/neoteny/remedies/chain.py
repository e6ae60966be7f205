"""CHAIN (Tang & Berseth 2024), churn reduction: an update should not change what the network says elsewhere.

theta' is the network one update ago (`neoteny.remedies.earlier`) and B' a second batch, drawn independently. Added to
the loss are these means over B':

    critics beside an actor     0.1 sum_i mean (Q_i - Q_i')^2
    TD3's actor                 5e-4 mean|Q| mean (pi - pi')^2, over the dimensions of actions too
    SAC's actor                 5e-4 mean|min Q - alpha log pi| mean KL(pi || pi'), before the tanh, clipped to [0, 100]
    values that act (DDQN)      lam mean (Q - Q')^2, over all actions too

The factors mean|...| are constants, over the first batch: the mean size of the actor's loss. lam is 100 at first; once
10,000 updates were made it is 0.01 mean|L| / (mean churn + 1e-8), L the loss, churn what lam multiplies, with running
means of horizon 50,000. These numbers are the authors', https://github.com/bluecontra/CHAIN.

Ours: the running means are exponential and corrected for their beginning, theirs are plain ones of the last 50,000; the
KL is exact, theirs adds 1e-8 to each determinant; both of SAC's networks and both of TD3's are penalised by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import NetworkState, TrainableNetwork
from neoteny.agents.learner import Remedy, Step
from neoteny.errors import UsageError
from neoteny.remedies.config import RemedyConfig
from neoteny.remedies.earlier import EARLIER, follow, remember, variables_before

Tree = Any


@dataclass(frozen=True)
class Chain(RemedyConfig):
    """CHAIN (Tang & Berseth 2024): outputs on a second batch stay near those of one update ago."""

    name: ClassVar = "chain"
    prefix: ClassVar = "chain"
    kind: ClassVar = "penalty"
    critics: float = 0.1
    """Strength of CHAIN on critics beside an actor; 0 for none."""
    actor: float = 5e-4
    """Strength of CHAIN on an actor, times the mean size of its loss; 0 for none."""
    values: float = 100.0
    """Strength of CHAIN on the values of an agent without actor, until it is automatic; 0 for none at any time."""
    beta: float = 0.01
    """Share of the mean loss that CHAIN's automatic strength makes the penalty; 0 keeps --chain-values."""
    after: int = 10_000
    """Updates after which CHAIN's strength on those values is automatic."""
    horizon: int = 50_000
    """Updates of the running means that make CHAIN's automatic strength."""

    def __post_init__(self) -> None:
        for field in ("critics", "actor", "values", "beta"):
            self.require(field, 0 <= getattr(self, field) < float("inf"), "a finite number >= 0")
        for field in ("after", "horizon"):
            self.require(field, getattr(self, field) >= 1, ">= 1")

    def check(self, networks: Mapping[str, TrainableNetwork]) -> None:
        """Raise UsageError if a network does not say how far apart two of its outputs are."""
        for label, network in networks.items():
            if network.distance is None:
                raise UsageError(f"--remedy chain does not know how far apart outputs of the {label} are: set distance")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""

        def penalty(params: Tree, outputs: Tree, memory: Tree, step: Step) -> Array:
            if EARLIER not in memory:
                return jnp.zeros(())
            return self.strength(memory, step) * churn(params, memory, step)

        def after_step(own: NetworkState, memory: Tree, step: Step) -> tuple[NetworkState, Tree]:
            return remember(own, self._with_means(memory, step), step)

        return Remedy(
            self.name,
            memory=self._begin,
            penalty=penalty,
            second_batch=max(self.critics, self.actor, self.values) > 0,
            after_step=after_step,
            followed=follow,
        )

    def _begin(self, network: TrainableNetwork, params: Tree, key: Array) -> Tree:
        """Remember a new network as one update ago, if it is penalised; of values that act the means too."""
        value_only = network.kind == "value" and network.acts
        at_first = self.actor if network.kind == "policy" else self.values if value_only else self.critics
        if at_first == 0:
            return {}
        means = {"updates": jnp.int32(0), "loss": jnp.float32(0), "churn": jnp.float32(0)}
        return {EARLIER: params, **(means if value_only else {})}

    def strength(self, memory: Tree, step: Step) -> Array | float:
        """What the churn of this step is multiplied by."""
        if step.network.kind == "policy":
            return self.actor * jnp.abs(step.losses).mean()
        if not step.network.acts:
            return self.critics
        if self.beta == 0:
            return self.values
        # The first update has no churn to count.
        loss, moved = (self._mean(memory[name], memory["updates"] - skip) for name, skip in (("loss", 0), ("churn", 1)))
        return jnp.where(memory["updates"] >= self.after, self.beta * loss / (moved + 1e-8), self.values)

    def _mean(self, mean: Array, count: Array) -> Array:
        """A running mean of so many numbers that began at 0, corrected for that."""
        return mean / -jnp.expm1(jnp.maximum(count, 1) * jnp.log1p(-1.0 / self.horizon))

    def _with_means(self, memory: Tree, step: Step) -> Tree:
        """The memory in which the running means have this step's loss and churn, if it has means."""
        if "updates" not in memory:
            return memory
        moved = step.penalties[self.name] / jnp.maximum(self.strength(memory, step), 1e-30)
        return {
            **memory,
            "updates": memory["updates"] + 1,
            "loss": memory["loss"] + (jnp.abs(step.loss) - memory["loss"]) / self.horizon,
            "churn": memory["churn"] + (moved - memory["churn"]) / self.horizon,
        }


def churn(params: Tree, memory: Tree, step: Step) -> Array:
    """How far the outputs on the second batch are from those of one update ago, on average."""
    if step.other is None:
        raise UsageError("--remedy chain needs a second batch: give its fields with names such as other/obs")
    assert step.network.distance is not None
    now = step.network.forward({**step.own.params, "params": params}, step.state, step.other)
    then = step.network.forward(variables_before(memory, step), step.state, step.other)
    return step.network.distance(now, then).mean()
