"""PFO, proximal feature optimisation (Moalla et al. 2024): what acts keeps its features near those of its target.

Added to the loss of the network that chooses actions (the actor; in agents with values only, those: ours) is

    strength mean((phi - phi_old)^2)

over the batch and the units, phi the pre-activations of the last hidden layer: in SimBa, whose trunk ends without a
non-linearity, the 4 h units of the last block. phi_old is a constant. In the paper, which has PPO, it is of the policy
that collected the batch; here it is of the target network, or of the network one update ago where there is no target,
as for SAC's actor (ours). Critics beside an actor are left alone.

Strength: 10, and 1 for networks with convolutions, as in the authors' runs with ReLU on MuJoCo and on Atari
(https://github.com/CLAIRE-Labo/no-representation-no-trust). Double DQN on vectors has no precedent: it gets 10 (ours).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import TrainableNetwork
from neoteny.agents.learner import Remedy, Step, forward_and_hidden
from neoteny.networks import Anatomy, Path
from neoteny.remedies.config import RemedyConfig
from neoteny.remedies.earlier import EARLIER, follow, remember, variables_before

Tree = Any


@dataclass(frozen=True)
class PFO(RemedyConfig):
    """PFO (Moalla et al. 2024): the features of what acts stay near those of its target."""

    name: ClassVar = "pfo"
    prefix: ClassVar = "pfo"
    kind: ClassVar = "penalty"
    strength: float | None = None
    """Strength of PFO, 0 for none; 10 if not given, and 1 for pixels."""

    def __post_init__(self) -> None:
        right = self.strength is None or 0 <= self.strength < float("inf")
        self.require("strength", right, "a finite number >= 0")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""
        if self.strength == 0:
            return Remedy(self.name)

        def begin(network: TrainableNetwork, params: Tree, key: Array) -> Tree:
            return {EARLIER: params} if network.acts and not network.has_target else {}

        def penalty(params: Tree, outputs: Tree, memory: Tree, step: Step) -> Array:
            if not step.network.acts:
                return jnp.zeros(())
            strength = usual_strength(params) if self.strength is None else self.strength
            return strength * features_moved(memory, step)

        return Remedy(self.name, memory=begin, penalty=penalty, after_step=remember, followed=follow)


def usual_strength(params: Tree) -> float:
    """1 for a network with convolutions, else 10."""
    return 1.0 if any(leaf.ndim > 2 for leaf in jax.tree.leaves(params)) else 10.0


def features_moved(memory: Tree, step: Step) -> Array:
    """mean((phi - phi_old)^2), summed over the network's trunks."""
    old = step.own.target if step.network.has_target else variables_before(memory, step)
    _, hidden = forward_and_hidden(step.network, old, step.state, step.batch)
    squares = [
        ((step.hidden[path].preactivations - hidden[path].preactivations) ** 2).mean()
        for path in last_layers(step.network.anatomy)
    ]
    return sum(squares[1:], squares[0])


def last_layers(anatomy: Anatomy) -> list[Path]:
    """The path of the last hidden layer of each trunk."""
    return list({layer.incoming[0]: layer.incoming for layer in anatomy.hidden}.values())
