"""Resets: at which moments, of heads alone, and of SAC's alpha."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

from neoteny.agents.configs import SACConfig, TD3Config
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.remedies import Reset
from neoteny.remedies.registry import as_settings, from_settings
from neoteny.runs.records import read_metrics
from neoteny.settings.config import TrainConfig
from small_agents import CONFIGS, TINY, agent_of, moments, operated, run_with, trained

HEADS = {
    "td3": {"actor": ["head"], "critics": ["head_0", "head_1"]},
    "sac": {"actor": ["mean", "log_std"], "critics": ["head_0", "head_1"]},
    "ddqn": {"critics": ["head"]},
    "pixels": {"critics": ["head"]},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_of_heads_alone_nothing_else_changes_a_bit(name: str) -> None:
    """Kernel and bias of every head, the target's by the same draw, their moments 0; all the rest is as it was."""
    agent, state = trained(name)
    after = operated(Reset(from_="head"), agent, state, {}, jax.random.key(3))
    assert agent.networks.keys() == HEADS[name].keys()
    for network, heads in HEADS[name].items():
        was, own = getattr(state, network), getattr(after, network)
        parts = {
            "params": (was.params["params"], own.params["params"]),
            "mu": (moments(was.opt)[0].mu, moments(own.opt)[0].mu),
            "nu": (moments(was.opt)[0].nu, moments(own.opt)[0].nu),
        }
        if was.target is not None:
            parts["target"] = (was.target["params"], own.target["params"])
        for part, (old, new) in parts.items():
            for path, leaf in jax.tree_util.tree_leaves_with_path(new):
                before = dict(jax.tree_util.tree_leaves_with_path(old))[path]
                if path[0].key not in heads:
                    np.testing.assert_array_equal(leaf, before)
                elif part in ("mu", "nu"):
                    assert not np.asarray(leaf).any()
                elif name != "sac" or path[-1].key != "bias":  # which SimBa begins at 0 in every network
                    assert not np.isclose(leaf, before).any()
                if path[0].key in heads and part == "target":
                    np.testing.assert_array_equal(
                        leaf, dict(jax.tree_util.tree_leaves_with_path(parts["params"][1]))[path]
                    )
        assert [int(adam.count) for adam in moments(own.opt)] == [0] * len(moments(own.opt))
    networks = {network: getattr(state, network) for network in HEADS[name]}
    jax.tree.map(np.testing.assert_array_equal, replace(after, **networks), state)  # what is no network, too


def test_moments_by_hand() -> None:
    done = Reset(at=(3, 7)).build(100).done
    assert [done(updates) for updates in range(10)] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    done = Reset(every=4).build(100).done
    assert [done(updates) for updates in range(10)] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_a_run_is_reset_at_the_moments_asked_for(tmp_path: Path) -> None:
    run = run_with(tmp_path, TINY, "Pendulum-v1", Reset(at=(15, 40)), steps=180)
    assert [line["updates"] for line in read_metrics(run) if line.get("remedy") == "reset"] == [15, 40]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reset_at": (5, 5)}, "--reset-at must be numbers of updates from 1 on, each larger .* before, got 5 5"),
        ({"reset_at": (7, 5)}, "--reset-at must be numbers of updates from 1 on, each larger .* before, got 7 5"),
        ({"reset_at": (0, 5)}, "--reset-at must be numbers of updates from 1 on, each larger .* before, got 0 5"),
        (
            {"reset_at": (5, 9), "reset_every": 200_000},
            "--reset-every 200000 and --reset-at 5 9 both say when to reset",
        ),
    ],
)
def test_moments_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_settings(("reset",), settings)


@pytest.mark.parametrize("remedy", [Reset(), Reset(at=(5, 9)), Reset(7, "head"), Reset(alpha=True)])
def test_a_reset_is_the_same_from_its_settings_and_from_a_record(remedy: Reset) -> None:
    assert from_settings(("reset",), as_settings((remedy,))) == (remedy,)
    config = TrainConfig("X", remedies=(remedy,))
    assert TrainConfig.from_json(config.to_json()).remedies == (remedy,)
    assert Reset(at=[5, 9]) == Reset(at=(5, 9))  # type: ignore[arg-type]


def test_alpha_begins_anew_only_if_asked_for() -> None:
    agent, state = trained("sac", updates=4)
    new = agent.init(jax.random.key(0))
    assert state.log_alpha != new.log_alpha
    kept = operated(Reset(), agent, state, {}, jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, (kept.log_alpha, kept.alpha_opt), (state.log_alpha, state.alpha_opt))
    renewed = operated(Reset(alpha=True), agent, state, {}, jax.random.key(3))
    np.testing.assert_array_equal(renewed.log_alpha, np.log(np.float32(CONFIGS["sac"].alpha)))  # type: ignore[union-attr]
    jax.tree.map(np.testing.assert_array_equal, renewed.alpha_opt, optax.adam(1e-4).init(renewed.log_alpha))
    jax.tree.map(np.testing.assert_array_equal, renewed.critics, kept.critics)


@pytest.mark.slow
def test_a_run_whose_alpha_was_reset_goes_on(tmp_path: Path) -> None:
    """Its state is donated, so what is new may share no buffer."""
    agent = SACConfig(actor_width=6, critic_width=6, actor_blocks=1, critic_blocks=1, batch_size=16, learning_starts=20)
    run = run_with(tmp_path, agent, "Pendulum-v1", Reset(at=(20,), alpha=True), steps=60)
    assert [line["updates"] for line in read_metrics(run) if line.get("remedy") == "reset"] == [20]


def test_alpha_is_refused_where_there_is_none(tmp_path: Path) -> None:
    for name in ("td3", "ddqn"):
        with pytest.raises(UsageError, match="--reset-alpha is for an agent that trains an alpha"):
            Reset(alpha=True).check_agent(agent_of(name))
    Reset(alpha=True).check_agent(agent_of("sac"))
    bound = np.ones(2, np.float32)
    constant = make_agent(SACConfig(6, 1, 6, 1, tune_alpha=False), Problem((5,), False, 2, -bound, bound, 100))
    with pytest.raises(UsageError, match="as sac does unless --no-tune-alpha is given, and this one trains none"):
        Reset(alpha=True).check_agent(constant)
    with pytest.raises(UsageError, match="this one trains none: leave it out"):
        run_with(tmp_path, TD3Config((8,)), "Pendulum-v1", Reset(alpha=True))
