"""Each agent's targets and gradients beside a plain float64 NumPy twin: agreement to 1e-5."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neoteny.agents import ddqn, sac, td3
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.agents.normaliser import init as init_normaliser
from neoteny.agents.normaliser import normalise, observe
from neoteny.agents.problem import Problem

BATCH, OBS, ACTIONS = 16, 5, 3
LOW, HIGH = np.array([-1, -2, 0], np.float32), np.array([1, 2, 4], np.float32)
SCALE, MIDDLE = (HIGH - LOW) / 2.0, (HIGH + LOW) / 2.0
CONTINUOUS = Problem((OBS,), False, ACTIONS, LOW, HIGH, 1_000)
DISCRETE = Problem((OBS,), False, ACTIONS, None, None, 1_000)


def batch(discrete: bool, weights: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    fields: dict[str, np.ndarray] = {
        "obs": rng.normal(size=(BATCH, OBS)),
        "action": rng.integers(0, ACTIONS, BATCH) if discrete else rng.uniform(LOW, HIGH, (BATCH, ACTIONS)),
        "reward": rng.normal(size=BATCH),
        "next_obs": rng.normal(size=(BATCH, OBS)),
        "terminated": (rng.random(BATCH) < 0.3).astype(float),
        "truncated": np.zeros(BATCH),
    }
    if weights:
        fields["weight"] = rng.uniform(0.1, 1, BATCH)
    return {name: v.astype(np.int32 if name == "action" and discrete else np.float32) for name, v in fields.items()}


def one_update(agent: Any, state: Any, data: dict[str, np.ndarray]) -> tuple[Any, Any]:
    return jax.jit(agent.update)(state, {name: jnp.asarray(value)[None] for name, value in data.items()})


def gradient(opt: Any) -> Any:
    """What Adam was given, from its first moment after one step: (1 - 0.9) g."""
    return {"params": jax.tree.map(lambda moment: np.asarray(moment, np.float64) / 0.1, opt[0].mu)}


def float64(tree: Any) -> Any:
    def exact(leaf: Any) -> Any:
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf if is_key else np.array(leaf, np.float64)

    return jax.tree.map(exact, tree)


def dense(p: Any, x: np.ndarray) -> np.ndarray:
    return x @ p["kernel"] + p["bias"]


def mlp(p: Any, x: np.ndarray) -> np.ndarray:
    for name in sorted(p):
        x = np.maximum(dense(p[name]["dense"], x), 0)
    return x


def layer_norm(p: Any, x: np.ndarray) -> np.ndarray:
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return x * p["scale"] + p["bias"]


def simba(p: Any, x: np.ndarray) -> np.ndarray:
    x = dense(p["input"], x)
    for index in range(sum(name.startswith("expand") for name in p)):
        y = np.maximum(dense(p[f"expand_{index}"], layer_norm(p[f"norm_{index}"], x)), 0)
        x = x + dense(p[f"compress_{index}"], y)
    return layer_norm(p["norm_out"], x)


def head(p: Any, x: np.ndarray) -> np.ndarray:
    out = p["out"]
    return dense(out.get("dense", out), x)


def twin_critics(params: Any, trunk: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    p, x = params["params"], np.concatenate([obs, action], axis=1)
    return np.stack([head(p[f"head_{i}"], trunk(p[f"trunk_{i}"], x))[:, 0] for i in range(2)])


def assert_gradient(loss: Any, params: Any, optimiser_gradient: Any) -> None:
    """Central differences at a few entries of every leaf, against the gradient that the optimiser got."""
    rng = np.random.default_rng(0)
    leaves, structure = jax.tree.flatten(params)
    for index, leaf in enumerate(leaves):
        got = jax.tree.leaves(optimiser_gradient)[index]
        for entry in [tuple(rng.integers(0, side) for side in leaf.shape) for _ in range(4)]:
            slopes = []
            for sign in (1, -1):
                moved = [other.copy() for other in leaves]
                moved[index][entry] += sign * 1e-6
                slopes.append(loss(jax.tree.unflatten(structure, moved)))
            assert got[entry] == pytest.approx((slopes[0] - slopes[1]) / 2e-6, rel=1e-5, abs=1e-5)


def with_moved_targets(state: Any, *names: str) -> Any:
    """So that targets and what they follow disagree, and using one for the other shows."""
    own = {name: getattr(state, name) for name in names}
    moved = {name: jax.tree.map(lambda leaf: leaf * 1.1 + 0.01, one.params) for name, one in own.items()}
    return replace(state, **{name: replace(one, target=moved[name]) for name, one in own.items()})


def assert_values(report: Any, values: np.ndarray, y: np.ndarray) -> None:
    """What is reported of the critics' values and of what they are to become."""
    told = {"q": values.mean(), "q_max": np.abs(values).max(), "target_abs": np.abs(y).mean()}
    for name, value in told.items():
        assert float(report.metrics[name]) == pytest.approx(value, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("weights", [False, True])
def test_td3(weights: bool) -> None:
    config = TD3Config((16, 8), policy_delay=1)
    agent = td3.make(config, CONTINUOUS)
    state, data = agent.init(jax.random.key(0)), batch(False, weights)
    state = with_moved_targets(state, "actor", "critics")
    after, report = one_update(agent, state, data)
    p, d = float64(state), float64(data)

    def policy(params: Any, obs: np.ndarray) -> np.ndarray:
        inner = params["params"]
        return np.tanh(head(inner["head"], mlp(inner["trunk"], obs))) * SCALE + MIDDLE

    noise = np.asarray(jax.random.normal(jax.random.split(state.key)[1], (BATCH, ACTIONS)), np.float64)
    noise = np.clip(0.2 * noise, -0.5, 0.5) * SCALE
    target_action = np.clip(policy(p.actor.target, d["next_obs"]) + noise, LOW, HIGH)
    values = twin_critics(p.critics.target, mlp, d["next_obs"], target_action)
    y = d["reward"] + 0.99 * (1 - d["terminated"]) * values.min(axis=0)

    def critics_loss(params: Any) -> float:
        errors = twin_critics(params, mlp, d["obs"], d["action"]) - y
        return float((d.get("weight", 1.0) * (errors**2).sum(axis=0)).mean())

    values = twin_critics(p.critics.params, mlp, d["obs"], d["action"])
    assert_values(report, values, y)
    errors = np.abs(values - y).mean(axis=0)
    np.testing.assert_allclose(report.errors[0], errors, rtol=1e-5, atol=1e-5)
    assert float(report.metrics["critic_loss"]) == pytest.approx(critics_loss(p.critics.params), rel=1e-5)
    assert_gradient(critics_loss, p.critics.params, gradient(after.critics.opt))

    def actor_loss(params: Any) -> float:
        return float(-twin_critics(float64(after.critics.params), mlp, d["obs"], policy(params, d["obs"]))[0].mean())

    assert float(report.metrics["actor_loss"]) == pytest.approx(actor_loss(p.actor.params), rel=1e-5)
    assert_gradient(actor_loss, p.actor.params, gradient(after.actor.opt))
    np.testing.assert_allclose(
        jax.tree.leaves(after.critics.target)[0],
        jax.tree.leaves(p.critics.target)[0] * 0.995 + np.asarray(jax.tree.leaves(after.critics.params)[0]) * 0.005,
        rtol=1e-5, atol=1e-6,
    )  # fmt: skip


@pytest.mark.parametrize("weights", [False, True])
def test_sac(weights: bool) -> None:
    config = SACConfig(8, 1, 8, 2, policy_delay=1, weight_decay=0.0, alpha=0.3)
    agent = sac.make(config, CONTINUOUS)
    state, data = agent.init(jax.random.key(0)), batch(False, weights)
    state = with_moved_targets(state, "critics")
    after, report = one_update(agent, state, data)
    p, d = float64(state), float64(data)
    obs, next_obs = d["obs"] / np.sqrt(1 + 1e-8), d["next_obs"] / np.sqrt(1 + 1e-8)  # fresh statistics: mean 0, var 1

    def draw(params: Any, x: np.ndarray, key: Any) -> tuple[np.ndarray, np.ndarray]:
        inner = params["params"]
        features = simba(inner["trunk"], x)
        mean, raw = head(inner["mean"], features), head(inner["log_std"], features)
        log_std = -5.0 + 0.5 * 7.0 * (np.tanh(raw) + 1)
        noise = np.asarray(jax.random.normal(key, (BATCH, ACTIONS)), np.float64)
        x = mean + np.exp(log_std) * noise
        density = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(SCALE / np.cosh(x) ** 2)
        return np.tanh(x) * SCALE + MIDDLE, density.sum(axis=1)

    key, sample_key = jax.random.split(state.key)
    action, log_prob = draw(p.actor.params, next_obs, sample_key)
    value = twin_critics(p.critics.target, simba, next_obs, action).min(axis=0) - 0.3 * log_prob
    y = d["reward"] + 0.99 * (1 - d["terminated"]) * value

    def critics_loss(params: Any) -> float:
        errors = twin_critics(params, simba, obs, d["action"]) - y
        return float((d.get("weight", 1.0) * (errors**2).sum(axis=0)).mean())

    values = twin_critics(p.critics.params, simba, obs, d["action"])
    assert_values(report, values, y)
    errors = np.abs(values - y).mean(axis=0)
    np.testing.assert_allclose(report.errors[0], errors, rtol=1e-5, atol=1e-5)
    assert float(report.metrics["critic_loss"]) == pytest.approx(critics_loss(p.critics.params), rel=1e-5)
    assert_gradient(critics_loss, p.critics.params, gradient(after.critics.opt))
    actor_key = jax.random.split(key)[1]

    def actor_loss(params: Any) -> float:
        chosen, density = draw(params, obs, actor_key)
        values = twin_critics(float64(after.critics.params), simba, obs, chosen).min(axis=0)
        return float((0.3 * density - values).mean())

    assert float(report.metrics["actor_loss"]) == pytest.approx(actor_loss(p.actor.params), rel=1e-5, abs=1e-5)
    assert_gradient(actor_loss, p.actor.params, gradient(after.actor.opt))
    entropy = -draw(p.actor.params, obs, actor_key)[1].mean()
    slope = 0.3 * (entropy + ACTIONS)  # d/dlog(alpha) of -alpha (log pi + target), target = -|A|
    assert float(after.alpha_opt[0].mu) / 0.1 == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("weights", [False, True])
def test_ddqn(weights: bool) -> None:
    agent = ddqn.make(DDQNConfig((16, 8)), DISCRETE)
    state, data = agent.init(jax.random.key(0)), batch(True, weights)
    state = with_moved_targets(state, "critics")
    after, report = one_update(agent, state, data)
    p, d = float64(state), float64(data)

    def value_of(params: Any, obs: np.ndarray) -> np.ndarray:
        return head(params["params"]["head"], mlp(params["params"]["trunk"], obs))

    best = value_of(p.critics.params, d["next_obs"]).argmax(axis=1)
    value = value_of(p.critics.target, d["next_obs"])[np.arange(BATCH), best]
    y = d["reward"] + 0.99 * (1 - d["terminated"]) * value

    def loss(params: Any) -> float:
        chosen = value_of(params, d["obs"])[np.arange(BATCH), data["action"]]
        return float((d.get("weight", 1.0) * (chosen - y) ** 2).mean())

    assert float(report.metrics["critic_loss"]) == pytest.approx(loss(p.critics.params), rel=1e-5)
    assert_gradient(loss, p.critics.params, gradient(after.critics.opt))
    chosen = value_of(p.critics.params, d["obs"])[np.arange(BATCH), data["action"]]
    assert_values(report, chosen, y)
    np.testing.assert_allclose(report.errors[0], np.abs(chosen - y), rtol=1e-5, atol=1e-5)


def same(a: Any, b: Any) -> bool:
    return all(bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_td3_moves_actor_and_targets_every_second_update() -> None:
    agent = td3.make(TD3Config((8,)), CONTINUOUS)
    first = agent.init(jax.random.key(0))
    second, _ = one_update(agent, first, batch(False, False))
    assert same(second.actor.params, first.actor.params)
    assert same(second.critics.target, first.critics.target)
    assert not same(second.critics.params, first.critics.params)
    third, _ = one_update(agent, second, batch(False, False))
    assert not same(third.actor.params, second.actor.params)
    assert not same(third.actor.target, second.actor.target)
    assert not same(third.critics.target, second.critics.target)


def test_sac_makes_two_actor_steps_every_second_update() -> None:
    agent = sac.make(SACConfig(8, 1, 8, 1), CONTINUOUS)
    first = agent.init(jax.random.key(0))
    second, _ = one_update(agent, first, batch(False, False))
    assert same(second.actor.params, first.actor.params)
    assert not same(second.critics.target, first.critics.target)  # targets at every update
    third, _ = one_update(agent, second, batch(False, False))
    assert not same(third.actor.params, second.actor.params)
    assert (int(third.actor.opt[0].count), int(third.alpha_opt[0].count)) == (2, 2)
    assert int(third.critics.opt[0].count) == 2


def test_weight_decay_is_adamws_and_spares_alpha() -> None:
    """Two learners that differ in weight decay alone differ by lr x decay x weight after a step."""
    states = []
    for decay in (0.0, 0.5):
        agent = sac.make(SACConfig(8, 1, 8, 1, weight_decay=decay, lr=1e-2, policy_delay=1), CONTINUOUS)
        start = agent.init(jax.random.key(0))
        states.append(one_update(agent, start, batch(False, False))[0])
    for plain, decayed, begun in zip(*(jax.tree.leaves(s.critics.params) for s in (*states, start)), strict=True):
        np.testing.assert_allclose(plain - decayed, 1e-2 * 0.5 * begun, rtol=1e-3, atol=1e-6)
    assert float(states[0].log_alpha) == pytest.approx(float(states[1].log_alpha), abs=1e-6)


def test_the_hard_target_is_copied_when_due() -> None:
    agent = ddqn.make(DDQNConfig((4,), target_every=8, utd=0.25), DISCRETE)  # every 2 updates
    state = agent.init(jax.random.key(0))
    first = jax.tree.leaves(state.critics.target)[1].copy()
    for update in (1, 2):
        state, _ = one_update(agent, state, batch(True, False))
        same = bool((jax.tree.leaves(state.critics.target)[1] == first).all())
        assert same == (update == 1)


def test_every_update_of_a_call_has_its_own_batch() -> None:
    """Two updates in one call equal two calls, each with its half: nothing is used twice."""
    agent = td3.make(TD3Config((8,)), CONTINUOUS)
    one, two = batch(False, False), {name: value[::-1].copy() for name, value in batch(False, False).items()}
    both = {name: jnp.stack([one[name], two[name]]) for name in one}
    together, _ = jax.jit(agent.update)(agent.init(jax.random.key(0)), both)
    apart, _ = one_update(agent, agent.init(jax.random.key(0)), one)
    apart, _ = one_update(agent, apart, two)
    for a, b in zip(jax.tree.leaves(together.critics), jax.tree.leaves(apart.critics), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_the_normaliser_is_the_plain_mean_and_variance() -> None:
    data = np.random.default_rng(0).normal(3, 2, (40, 10, 4)).astype(np.float32)
    norm = init_normaliser((4,))
    for part in data:
        norm = observe(norm, jnp.asarray(part))
    flat = data.reshape(-1, 4)
    np.testing.assert_allclose(norm.mean, flat.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(norm.var, flat.var(axis=0), rtol=1e-3)
    np.testing.assert_allclose(normalise(norm, flat).std(axis=0), 1, rtol=1e-3)


def test_sac_normalises_by_interaction_only() -> None:
    agent = sac.make(SACConfig(8, 1, 8, 1), CONTINUOUS)
    state = agent.init(jax.random.key(0))
    after, _ = one_update(agent, state, batch(False, False))
    assert float(after.acting.norm.count) == float(state.acting.norm.count)
    _, acting = agent.act(agent.policy_params(state), state.acting, jnp.ones((3, OBS)), jnp.float32(0))
    assert float(acting.norm.count) == pytest.approx(3.0001)


@pytest.mark.parametrize("agent", ["td3", "sac"])
def test_actions_stay_in_their_bounds(agent: str) -> None:
    learner = td3.make(TD3Config((8,), exploration_noise=5), CONTINUOUS) if agent == "td3" else None
    learner = learner or sac.make(SACConfig(8, 1, 8, 1), CONTINUOUS)
    state = learner.init(jax.random.key(0))
    actions, _ = learner.act(
        learner.policy_params(state), state.acting, jax.random.normal(jax.random.key(1), (500, OBS)), jnp.float32(0)
    )
    assert (np.asarray(actions) >= LOW - 1e-6).all()
    assert (np.asarray(actions) <= HIGH + 1e-6).all()


def test_epsilon_falls_over_the_exploration_phase() -> None:
    agent = ddqn.make(DDQNConfig((8,), exploration_fraction=0.5), DISCRETE)
    state = agent.init(jax.random.key(0))
    obs = jnp.ones((4_000, OBS))
    greedy = int(agent.policy(state.critics.params, obs[:1])[0])
    for step, epsilon in ((0, 1.0), (250, 0.505), (500, 0.01), (900, 0.01)):
        actions, _ = agent.act(agent.policy_params(state), state.acting, obs, jnp.float32(step))
        assert float((actions != greedy).mean()) == pytest.approx(epsilon * 2 / 3, abs=0.03)
