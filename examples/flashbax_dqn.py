"""Double DQN with age-weighted flashbax replay, environments, buffer and updates in one compiled program.

    pip install '.[flashbax]'   # in a clone of Neoteny
    python examples/flashbax_dqn.py

CartPole, four environments, seconds on one core; prints the mean length of the episodes that ended in each
stretch of steps (500 is the most). --replay uniform takes flashbax's own sampling.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import flashbax
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from neoteny.integrations.flashbax import make_age_weighted_item_buffer

NUM_ENVS, CAPACITY, WARM_UP, BATCH, STRETCHES, LONGEST = 4, 20_000, 500, 128, 10, 500


def step_cart_pole(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gymnasium's CartPole-v1: the state after 0.02 s of a push to the left (0) or right (1), and whether it fell."""
    x, v, angle, spin = state
    push = jnp.where(action == 1, 10.0, -10.0)
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    shove = (push + 0.05 * spin**2 * sin) / 1.1
    turn = (9.8 * sin - cos * shove) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    slide = shove - 0.05 * turn * cos / 1.1
    after = jnp.array([x + 0.02 * v, v + 0.02 * slide, angle + 0.02 * spin, spin + 0.02 * turn])
    return after, (jnp.abs(after[0]) > 2.4) | (jnp.abs(after[2]) > 12 * jnp.pi / 180)


class QNetwork(nn.Module):
    """A value for each action."""

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        """Values of shape (batch, 2)."""
        for width in (64, 64):
            obs = nn.relu(nn.Dense(width)(obs))
        return nn.Dense(2)(obs)


class Learner(NamedTuple):
    """All that changes while training."""

    params: Any
    target: Any
    optimizer: Any
    buffer: Any
    states: jax.Array
    lengths: jax.Array


def main(steps: int = 40_000, seed: int = 0, replay: str = "swd") -> list[float]:
    """Train for so many transitions, and return the mean length of each stretch's episodes."""
    if replay == "swd":
        buffer = make_age_weighted_item_buffer(
            CAPACITY, WARM_UP, BATCH, add_batches=True, num_envs=NUM_ENVS, decay_steps=10_000
        )
    else:
        buffer = flashbax.make_item_buffer(CAPACITY, WARM_UP, BATCH, add_batches=True)
    network, optimizer = QNetwork(), optax.adam(3e-4)

    def loss(params: Any, target: Any, batch: Any) -> jax.Array:
        best = network.apply(params, batch["next_obs"]).argmax(axis=1)
        ahead = jnp.take_along_axis(network.apply(target, batch["next_obs"]), best[:, None], axis=1)[:, 0]
        goal = 1.0 + 0.99 * (1.0 - batch["terminated"]) * ahead
        value = jnp.take_along_axis(network.apply(params, batch["obs"]), batch["action"][:, None], axis=1)[:, 0]
        return optax.huber_loss(value, goal).mean()

    def tick(learner: Learner, inputs: tuple[jax.Array, jax.Array]) -> tuple[Learner, tuple[jax.Array, jax.Array]]:
        key, done_share = inputs
        explore, push, draw, reset = jax.random.split(key, 4)
        greedy = network.apply(learner.params, learner.states).argmax(axis=1)
        chance = jnp.maximum(0.02, 1.0 - 5.0 * done_share)
        random = jax.random.bernoulli(explore, chance, (NUM_ENVS,))
        action = jnp.where(random, jax.random.randint(push, (NUM_ENVS,), 0, 2), greedy)
        after, fell = jax.vmap(step_cart_pole)(learner.states, action)
        items = {"obs": learner.states, "action": action, "next_obs": after, "terminated": fell.astype(jnp.float32)}
        held = buffer.add(learner.buffer, items)

        def update(now: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            params, target, state = now
            gradients = jax.grad(loss)(params, target, buffer.sample(held, draw).experience)
            changes, state = optimizer.update(gradients, state)
            params = optax.apply_updates(params, changes)
            return params, optax.incremental_update(params, target, 0.005), state

        now = (learner.params, learner.target, learner.optimizer)
        now = jax.lax.cond(buffer.can_sample(held), update, lambda same: same, now)
        lengths = learner.lengths + 1
        ended = fell | (lengths >= LONGEST)
        fresh = jax.random.uniform(reset, (NUM_ENVS, 4), minval=-0.05, maxval=0.05)
        states = jnp.where(ended[:, None], fresh, after)
        return Learner(*now, held, states, jnp.where(ended, 0, lengths)), (ended, lengths)

    @jax.jit
    def train(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        start, weights, run = jax.random.split(key, 3)
        states = jax.random.uniform(start, (NUM_ENVS, 4), minval=-0.05, maxval=0.05)
        params = network.init(weights, states)
        example = {"obs": states[0], "action": jnp.int32(0), "next_obs": states[0], "terminated": jnp.float32(0)}
        learner = Learner(
            params, params, optimizer.init(params), buffer.init(example), states, jnp.zeros(NUM_ENVS, jnp.int32)
        )
        ticks = steps // NUM_ENVS
        inputs = (jax.random.split(run, ticks), jnp.arange(ticks) / ticks)
        return jax.lax.scan(tick, learner, inputs)[1]

    ended, lengths = train(jax.random.key(seed))
    means = []
    for done, length in zip(jnp.split(ended, STRETCHES), jnp.split(lengths, STRETCHES), strict=True):
        means.append(float((done * length).sum() / done.sum()))
        print(f"{len(means) * steps // STRETCHES:>7} steps  mean episode {means[-1]:6.1f}")
    return means


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", choices=("swd", "uniform"), default="swd")
    main(**vars(parser.parse_args()))
