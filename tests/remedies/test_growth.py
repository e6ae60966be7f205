"""Growing critics: when they grow, what is new in them, how fast they learn, and that they survive a checkpoint."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import neoteny
from neoteny.agents.configs import SACConfig, TD3Config
from neoteny.agents.operating import operate, shapes_after
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.remedies import Growth, ReDo
from neoteny.runs.records import read_metrics
from neoteny.settings.config import PlasticityConfig, TrainConfig
from neoteny.settings.options import parse
from neoteny.settings.presets import start_from
from small_agents import RUNS, batch_of, compilations, ends_the_same, moments, run_with

BOUND = np.ones(2, np.float32)
PROBLEM = Problem((5,), False, 2, -BOUND, BOUND, 100)
SMALL = SACConfig(4, 1, 4, 2, batch_size=8, learning_starts=30, policy_delay=1)
GROWTH = Growth(at=(5, 12), reset_at=(9,))
"""It grows after update 5, is reset after 9, and grows after 14 and 21."""


@functools.cache
def begun() -> tuple[Any, Any, Any]:
    remedy = GROWTH.build(100)
    agent = make_agent(SMALL, PROBLEM, remedies=(remedy,))
    state = jax.jit(agent.init)(jax.random.key(0))
    batch = {name: value[None] for name, value in batch_of("sac", 8).items()}
    return remedy, agent, jax.jit(agent.update)(state, batch)[0]


@functools.cache
def grown() -> Any:
    remedy, agent, state = begun()
    return jax.jit(lambda state: operate(remedy, (remedy,), agent, state, {}, jax.random.key(1), 0))(state)


def test_the_moments_count_from_the_last_reset() -> None:
    assert GROWTH.moments() == [(5, True), (9, False), (14, True), (21, True)]
    resets = [(15_000, False), (50_000, False), (100_000, True), (250_000, False), (300_000, True), (450_000, True)]
    assert Growth().moments() == [
        *resets,
        *[(500_000, False), (550_000, True), (700_000, True)],
        *[(750_000, False), (800_000, True), (950_000, True)],
    ]


def test_a_grown_network_has_one_more_block_and_is_the_same_otherwise() -> None:
    _, _, before = begun()
    after = grown()
    for index in range(2):
        new, target = (tree["params"][f"trunk_{index}"] for tree in (after.critics.params, after.critics.target))
        old = before.critics.params["params"][f"trunk_{index}"]
        assert new.keys() - old.keys() == {"norm_2", "expand_2", "compress_2"}
        jax.tree.map(np.testing.assert_array_equal, {name: new[name] for name in old}, old)
        jax.tree.map(np.testing.assert_array_equal, *({n: t[n] for n in ("expand_2", "norm_2")} for t in (new, target)))
        for part, gram in (("expand_2", lambda k: k @ k.T), ("compress_2", lambda k: k.T @ k)):
            np.testing.assert_allclose(gram(np.asarray(new[part]["kernel"])), 2 * np.eye(4), atol=1e-5)
            assert not np.asarray(new[part]["bias"]).any()
    assert not np.allclose(*(after.critics.params["params"][f"trunk_{i}"]["expand_2"]["kernel"] for i in range(2)))
    (adam,), (adam_before,) = moments(after.critics.opt), moments(before.critics.opt)
    assert int(adam.count) == 0
    assert not np.asarray(adam.mu["trunk_0"]["expand_2"]["kernel"]).any()
    np.testing.assert_array_equal(
        adam.nu["trunk_0"]["expand_1"]["kernel"], adam_before.nu["trunk_0"]["expand_1"]["kernel"]
    )
    jax.tree.map(np.testing.assert_array_equal, after.actor, before.actor)


def test_the_new_block_computes() -> None:
    _, agent, _ = begun()
    state, batch = grown(), batch_of("sac", 8)
    p = state.critics.params["params"]

    def norm(own: Any, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * own["scale"] + own["bias"]

    values = []
    for index in range(2):
        trunk = jax.tree.map(np.asarray, p[f"trunk_{index}"])
        x = np.concatenate([batch["obs"], batch["action"]], 1) @ trunk["input"]["kernel"] + trunk["input"]["bias"]
        for block in range(3):
            expand, compress = trunk[f"expand_{block}"], trunk[f"compress_{block}"]
            y = np.maximum(norm(trunk[f"norm_{block}"], x) @ expand["kernel"] + expand["bias"], 0)
            x = x + y @ compress["kernel"] + compress["bias"]
        head = jax.tree.map(np.asarray, p[f"head_{index}"]["out"])
        values.append((norm(trunk["norm_out"], x) @ head["kernel"] + head["bias"])[:, 0])
    ours = jax.jit(agent.networks["critics"].forward)(state.critics.params, state, batch)
    np.testing.assert_allclose(ours, values, rtol=1e-4, atol=1e-5)


def test_the_learning_rate_is_divided_by_the_growth() -> None:
    remedy, agent, before = begun()
    network = agent.networks["critics"]
    ours = remedy.optimiser(network)

    def size(params: Any) -> int:
        return sum(np.size(leaf) for leaf in jax.tree.leaves(params))

    first = before.critics.params["params"]
    for params in (first, grown().critics.params["params"]):
        gradient = jax.tree.map(lambda leaf: 0.1 * np.ones(leaf.shape, np.float32), params)
        step, plain = jax.jit(lambda p, g: [o.update(g, o.init(p), p)[0] for o in (ours, network.optimiser)])(
            params, gradient
        )
        ratio = np.float32(size(first) / size(params))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b * ratio, rtol=1e-5), step, plain)  # noqa: B023
    assert ratio < 0.8


def test_a_reset_goes_back_to_the_first_size() -> None:
    remedy, agent, _ = begun()
    blocks = []
    for updates in (0, 4, 5, 8, 9, 13, 14, 20, 21, 100):
        shapes = shapes_after(agent, (remedy,), updates).critics
        assert jax.tree.structure(shapes.params["params"]) == jax.tree.structure(moments(shapes.opt)[0].mu)
        blocks.append(sum(name.startswith("expand") for name in shapes.params["params"]["trunk_0"]))
    assert blocks == [2, 2, 3, 3, 2, 2, 3, 3, 4, 4]
    reset = jax.jit(lambda state: operate(remedy, (remedy,), agent, state, {}, jax.random.key(2), 1))(grown())
    assert jax.tree.structure(reset) == jax.tree.structure(begun()[2])
    assert int(moments(reset.actor.opt)[0].count) == 0
    jax.tree.map(np.testing.assert_array_equal, reset.critics.params, reset.critics.target)


def config(steps: int, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {"plasticity": PlasticityConfig(0), "remedies": (GROWTH,), **changes}
    own = {"eval_every": 0, "log_every": 10, "checkpoint_every": 1e9}
    return TrainConfig("Pendulum-v1", SMALL, total_timesteps=steps, **own, **settings)


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_bits_and_each_shape_is_compiled_once(tmp_path: Path) -> None:
    """Of SAC; tests/faults has it for the other agents."""
    agent, env = RUNS["sac"]
    growth = Growth(at=(15, 35), reset_at=(25,))
    run = run_with(tmp_path, agent, env, growth, steps=147)  # after 47 updates: grown, reset, grown
    neoteny.resume(run, steps=170, quiet=True)
    whole = run_with(tmp_path, agent, env, growth, name="whole", steps=170)
    assert ends_the_same(run, whole)
    assert [line["updates"] for line in read_metrics(run) if "remedy" in line] == [15, 25, 40, 60]
    assert compilations(whole) == 3  # with the first blocks, with one more, and with two
    assert compilations(run) == 2  # since it was resumed: with one more, and with two


@pytest.mark.slow
def test_a_grown_network_is_measured(tmp_path: Path) -> None:
    run = neoteny.train(config(37, plasticity=PlasticityConfig(6)), out=tmp_path / "run", quiet=True)
    measured = [line for line in read_metrics(run) if "probe/critics/ntk_trace" in line]
    assert [line["updates"] for line in measured] == [1, 6]
    assert all(np.isfinite(line["probe/critics/ntk_trace"]) for line in measured)


def test_the_preset_and_what_is_refused() -> None:
    config = start_from("sac", "fog", "Pendulum-v1")
    assert (config.replay.replay, config.remedies, config.agent.critic_blocks) == ("geometric", (Growth(),), 2)
    words = ["--env", "Pendulum-v1", "--preset", "fog"]
    assert parse("sac", words).config == config
    assert parse("sac", [*words, "--growth-at", "7", "9"]).config.remedies == (Growth(at=(7, 9)),)
    assert parse("sac", [*words, "--remedy", "redo"]).config.remedies == (ReDo(),)
    with pytest.raises(UsageError, match="which no other follows: drop redo"):
        replace(config, remedies=(ReDo(), Growth()))
    with pytest.raises(UsageError, match="--growth-at must be numbers of updates from 1 on"):
        Growth(at=(9, 7))
    with pytest.raises(UsageError, match="it needs --network simba"):
        Growth().check_agent(make_agent(TD3Config((4, 4)), PROBLEM))
