"""SimBaV2 as a preset of SAC: its networks, its critics, its rewards and its numbers, against slow twins."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy_twins import simbav2, simbav2_head

import neoteny
from neoteny.agents import returns
from neoteny.agents.configs import PRESETS, SACConfig
from neoteny.agents.distributional import categorical, project
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.agents.sac import learning_rate
from neoteny.errors import UsageError
from neoteny.remedies.surgery import cleared
from neoteny.settings.config import PlasticityConfig, TrainConfig
from neoteny.settings.options import parse
from neoteny.settings.presets import complete, start_from
from small_agents import batch_of

BOUND = np.ones(2, np.float32)
SMALL: Any = replace(
    PRESETS["sac"]["simbav2"],
    actor_width=4,
    critic_width=4,
    num_bins=11,
    num_critics=2,
    gamma=0.9,
    utd=1.0,
    learning_starts=380,
    batch_size=8,
)


@functools.cache
def agent() -> Any:
    return make_agent(SMALL, Problem((5,), False, 2, -BOUND, BOUND, 100))


@functools.cache
def after_updates() -> list[Any]:
    """The first states: a new one, and that after each of two updates."""
    states = [jax.jit(agent().init)(jax.random.key(0))]
    update = jax.jit(agent().update)
    for seed in range(2):
        batch = {name: value[None] for name, value in batch_of("sac", 8, seed).items()}
        states.append(update(states[-1], batch)[0])
    return states


def test_incoming_vectors_have_norm_1_from_the_first_and_after_every_update() -> None:
    for state in after_updates():
        for own in (state.actor, state.critics):
            leaves = jax.tree_util.tree_leaves_with_path(own.params["params"])
            kernels = [leaf for path, leaf in leaves if path[-1].key == "kernel"]
            assert len(kernels) == (1 + 2 * 1 + 2 * 2 if own is state.actor else 2 * (1 + 2 * 2 + 2))
            for kernel in kernels:
                np.testing.assert_allclose((np.asarray(kernel, np.float64) ** 2).sum(axis=0), 1.0, atol=1e-5)
    first, last = (
        np.asarray(after_updates()[i].critics.params["params"]["trunk_0"]["input"]["kernel"]) for i in (0, 2)
    )
    assert not np.allclose(first, last)


def test_actor_and_critics_compute_the_published_equations() -> None:
    state, batch = after_updates()[2], batch_of("sac", 8)
    networks = agent().networks
    obs = batch["obs"].astype(np.float64) / np.sqrt(1 + 1e-8)  # as long as nothing was observed: mean 0, variance 1
    params = state.actor.params["params"]
    features = simbav2(params["trunk"], obs)
    mean, log_std = jax.jit(networks["actor"].forward)(state.actor.params, state, batch)
    np.testing.assert_allclose(mean, simbav2_head(params["mean"], features), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(log_std, simbav2_head(params["log_std"], features), rtol=1e-4, atol=1e-5)
    params = state.critics.params["params"]
    logits = jax.jit(networks["critics"].forward)(state.critics.params, state, batch)
    inputs = np.concatenate([obs, batch["action"]], axis=1)
    for index in range(2):
        expected = simbav2_head(params[f"head_{index}"], simbav2(params[f"trunk_{index}"], inputs))
        np.testing.assert_allclose(logits[index], expected, rtol=1e-4, atol=1e-5)
    odds = np.exp(np.asarray(logits, np.float64))
    means = (odds / odds.sum(-1, keepdims=True) * np.linspace(-5, 5, 11)).sum(-1)
    np.testing.assert_allclose(networks["critics"].value(logits, batch), means.T, rtol=1e-4, atol=1e-5)


def projected_by_hand(atoms: Any, probabilities: Any, bins: int, reach: float) -> Any:
    """Bellemare et al. (2017), Algorithm 1, in loops."""
    gap = 2 * reach / (bins - 1)
    result = np.zeros_like(probabilities)
    for sample in range(len(atoms)):
        for j in range(bins):
            where = (min(max(atoms[sample, j], -reach), reach) + reach) / gap
            low, high = int(np.floor(where)), int(np.ceil(where))
            if low == high:
                result[sample, low] += probabilities[sample, j]
            else:
                result[sample, low] += probabilities[sample, j] * (high - where)
                result[sample, high] += probabilities[sample, j] * (where - low)
    return result


def test_the_projection_is_that_of_c51() -> None:
    rng = np.random.default_rng(0)
    atoms = rng.uniform(-8, 8, (6, 11))
    atoms[0] = np.linspace(-5, 5, 11)  # on the bins
    probabilities = rng.dirichlet(np.ones(11), 6)
    ours = project(jnp.asarray(atoms), jnp.asarray(probabilities), jnp.linspace(-5, 5, 11))
    np.testing.assert_allclose(ours, projected_by_hand(atoms, probabilities, 11, 5.0), atol=1e-5)
    np.testing.assert_allclose(ours.sum(axis=1), 1.0, atol=1e-5)


def test_the_critic_of_the_smaller_mean_tells_the_target_and_cross_entropy_is_minimised() -> None:
    rng = np.random.default_rng(1)
    kind, bins = categorical(11, 5.0), np.linspace(-5, 5, 11)
    logits = rng.normal(size=(2, 6, 11))
    odds = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    reward, cost = rng.normal(size=6), rng.normal(size=6)
    terminated = np.array([0, 1, 0, 0, 1, 0.0])
    means = odds @ bins
    chosen = np.stack([odds[means[:, i].argmin(), i] for i in range(6)])
    atoms = reward[:, None] + 0.9 * (1 - terminated)[:, None] * (bins - cost[:, None])
    batch = {"reward": jnp.asarray(reward), "terminated": jnp.asarray(terminated)}
    target = kind.bootstrap(batch, 0.9, kind.least(jnp.asarray(logits)), jnp.asarray(cost))
    expected = projected_by_hand(atoms, chosen, 11, 5.0)
    np.testing.assert_allclose(target, expected, atol=1e-5)
    losses, told = kind.losses(jnp.asarray(logits), target)
    np.testing.assert_allclose(losses, -(expected * np.log(odds)).sum(-1).sum(0), rtol=1e-4)
    np.testing.assert_allclose(told["errors"], np.abs(means - expected @ bins).mean(0), rtol=1e-3, atol=1e-5)


def test_return_statistics_equal_a_list_of_all_returns() -> None:
    rng = np.random.default_rng(2)
    rewards, ended = rng.normal(size=(40, 3)), rng.random((40, 3)) < 0.15
    statistics = returns.init(3)
    observe = jax.jit(lambda *step: returns.observe(*step, gamma=0.9))
    met: list[list[float]] = []
    episodes: list[list[float]] = [[], [], []]
    for reward, end in zip(rewards, ended, strict=True):
        statistics = observe(statistics, reward.astype(np.float32), end)
        for index in range(3):
            episodes[index].append(reward[index])
        met.append([sum(r * 0.9 ** (len(own) - 1 - t) for t, r in enumerate(own)) for own in episodes])
        for index in np.flatnonzero(end):
            episodes[index] = []
    assert ended.any()
    everything = np.array(met)
    np.testing.assert_allclose(statistics.spread.var, everything.var(), rtol=1e-3)  # which begins as 1e-4 returns of 0
    np.testing.assert_allclose(statistics.largest, np.abs(everything).max(), rtol=1e-5)
    np.testing.assert_allclose(statistics.current, np.where(ended[-1], 0, met[-1]), rtol=1e-4, atol=1e-6)
    for reach in (0.5, 100.0):
        expected = max(np.sqrt(everything.var() + 1e-8), np.abs(everything).max() / reach)
        np.testing.assert_allclose(returns.scale(statistics, reach), expected, rtol=1e-3)


def test_rewards_are_scaled_at_the_update_and_statistics_are_of_interaction_alone() -> None:
    state, batch = after_updates()[0], batch_of("sac", 8)
    acting = agent().observe(state.acting, jnp.array([3.0]), jnp.array([False]))
    told = replace(state, acting=acting)
    critics = agent().networks["critics"]
    logits = critics.forward(state.critics.params, state, batch)
    loss = jax.jit(critics.loss)
    divided = {**batch, "reward": batch["reward"] / np.asarray(returns.scale(acting.returns, 5.0))}
    unscaled = replace(state, acting=replace(state.acting, returns=None))
    ours, expected = loss(logits, told, batch, jax.random.key(3)), loss(logits, unscaled, divided, jax.random.key(3))
    np.testing.assert_allclose(ours[0], expected[0], rtol=1e-5)
    assert after_updates()[2].acting.returns.spread.count == state.acting.returns.spread.count


def test_the_learning_rate_falls_linearly_over_the_run_and_surgery_leaves_its_count() -> None:
    rate: Any = learning_rate(SMALL, Problem((5,), False, 2, -BOUND, BOUND, 100))
    np.testing.assert_allclose([rate(0), rate(50), rate(100), rate(200)], [1e-4, 7.5e-5, 5e-5, 5e-5], rtol=1e-5)
    assert learning_rate(SACConfig(), Problem((5,), False, 2, -BOUND, BOUND, 100)) == 1e-4
    own = after_updates()[2].critics
    params = own.params["params"]
    opt = cleared(own.opt, params, jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), params), restart=True)
    counts = [int(leaf) for leaf in jax.tree.leaves(opt) if leaf.ndim == 0]
    assert counts == [0, 2]  # Adam's, and the schedule's


@pytest.mark.parametrize(
    ("env", "repeat", "gamma", "utd", "critics"),
    [
        ("dm_control/dog-run-v0", None, 0.99, 2.0, 1),
        ("dm_control/dog-run-v0", 1, 0.995, 1.0, 1),
        ("Hopper-v5", None, 0.995, 1.0, 2),
        ("Pendulum-v1", None, 0.975, 1.0, 2),
        ("Pendulum-v1", 4, 0.95, 4.0, 2),
    ],
)
def test_what_follows_from_the_environment(
    env: str, repeat: int | None, gamma: float, utd: float, critics: int
) -> None:
    config = complete(replace(start_from("sac", "simbav2", env), action_repeat=repeat), "simbav2")
    own: Any = config.agent
    assert (own.gamma, own.utd, own.num_critics) == (pytest.approx(gamma), utd, critics)
    words = ["--env", env, "--preset", "simbav2", *(["--action-repeat", str(repeat)] if repeat else [])]
    assert parse("sac", words).config.agent == own
    kept: Any = parse("sac", [*words, "--gamma", "0.9", "--utd", "3"]).config.agent
    assert (kept.gamma, kept.utd) == (0.9, 3)


def test_the_presets_other_numbers() -> None:
    own: Any = PRESETS["sac"]["simbav2"]
    assert (own.actor_width, own.actor_blocks, own.critic_width, own.critic_blocks) == (128, 1, 512, 2)
    assert (own.num_bins, own.value_range, own.lr, own.lr_end, own.weight_decay) == (101, 5.0, 1e-4, 5e-5, 0.0)
    assert (own.alpha, own.target_entropy, own.log_std_min, own.log_std_max) == (0.01, -0.5, -10.0, 2.0)
    assert (own.batch_size, own.learning_starts, own.policy_delay, own.tau) == (256, 5_000, 1, 0.005)
    with pytest.raises(UsageError, match="Mine tells none: give --gamma a number"):
        complete(start_from("sac", "simbav2", "Mine"), "simbav2")
    with pytest.raises(UsageError, match="--value-range is for --num-bins or --scale-rewards"):
        SACConfig(value_range=3.0)


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    def config(steps: int) -> TrainConfig:
        return TrainConfig(
            "Pendulum-v1",
            replace(SMALL, lr_end=None),  # the horizon of a longer run is another, and so its schedule would be
            plasticity=PlasticityConfig(0),
            total_timesteps=steps,
            num_envs=2,
            eval_every=0,
            log_every=10,
            checkpoint_every=1e9,
        )

    run = neoteny.train(config(420), out=tmp_path / "run", quiet=True)  # the first episodes end at step 400
    neoteny.resume(run, steps=460, quiet=True)
    whole = neoteny.train(config(460), out=tmp_path / "whole", quiet=True)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
