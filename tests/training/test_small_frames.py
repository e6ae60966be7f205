"""Double DQN on frames of channels: how they are stored, refused, learned from, measured, operated on and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import neoteny
from neoteny import envs
from neoteny.agents.configs import DDQNConfig
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.experiments.ready import replay_bytes
from neoteny.remedies import ReDo, Reset
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.storage import Field
from neoteny.runs.policy import problem_of
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training.setup import frames_of

SMALL = Problem((1, 4, 10, 10), True, 3, None, None, 100)


def test_every_transition_of_the_shortest_episodes_is_kept() -> None:
    """Of 2 steps each: one final frame for every 2 transitions."""
    fields: Any = {"obs": frames_of(SMALL, 50), "terminated": Field((), np.bool_), "truncated": Field((), np.bool_)}
    buffer = ReplayBuffer(50, fields, neoteny.AgeWeightedSampler(neoteny.Uniform()))
    frame = [np.full((1, 1, 4, 10, 10), number % 251, np.uint8) for number in range(400)]
    for episode in range(100):
        first = 3 * episode
        for step in range(2):
            buffer.add(
                obs=frame[first + step], next_obs=frame[first + step + 1], terminated=[step == 1], truncated=[False]
            )
    assert len(buffer) == 50
    newest = buffer.gather(np.arange(50))
    before, after = (newest.pixels[name][:, 0, 0, 0, 0] for name in ("obs", "next_obs"))
    expected = [(3 * episode + step) % 251 for episode in range(99, 74, -1) for step in (1, 0)]
    np.testing.assert_array_equal(before, expected)
    np.testing.assert_array_equal(after, [(number + 1) % 251 for number in expected])


def test_the_bytes_of_small_frames_are_those_of_the_buffer() -> None:
    config = TrainConfig("MinAtar/Breakout-v1", DDQNConfig(), ReplayConfig(capacity=1_000))
    frames = 400 * (1_000 + 1 + 500) + 5 * (1_000 + 1) + 8 * 500
    assert replay_bytes(config, SMALL) == frames + 4 * 1_000 * 4  # action, reward, terminated, truncated


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (DDQNConfig(cnn_width=64), "--cnn-width has no use here: MinAtar/Breakout-v1 gives small frames"),
        (DDQNConfig(widths=(64,)), "--widths has no use here: MinAtar/Breakout-v1 gives small frames"),
    ],
)
def test_settings_of_other_networks_are_refused(agent: DDQNConfig, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        problem_of(envs.make("MinAtar/Breakout-v1"), TrainConfig("MinAtar/Breakout-v1", agent))


def test_channels_are_not_mixed_up_with_places() -> None:
    """The value of an observation by the network itself, with channels last as it takes them."""
    agent = make_agent(DDQNConfig(), SMALL)
    state = agent.init(jax.random.key(0))
    obs = np.random.default_rng(0).integers(0, 2, (5, 1, 4, 10, 10), dtype=np.uint8)
    network = agent.networks["critics"]
    values = network.forward(state.critics.params, state, {"obs": obs})
    other = make_agent(DDQNConfig(), Problem((4, 10, 10), True, 3, None, None, 100)).networks["critics"]
    np.testing.assert_array_equal(values, other.forward(state.critics.params, state, {"obs": obs[:, 0]}))
    swapped = network.forward(state.critics.params, state, {"obs": obs.swapaxes(-1, -2)})
    assert not np.allclose(values, swapped)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["MinAtar/Seaquest-v1", "neoteny/MinAtarInTurn-v0"])
def test_a_run_is_measured_operated_on_and_resumed_to_the_same_bits(env: str, tmp_path: Path) -> None:
    def config(steps: int) -> TrainConfig:
        return TrainConfig(
            env,
            DDQNConfig(learning_starts=50, batch_size=8, target_every=20, epsilon_start=0.5, epsilon_end=0.5),
            ReplayConfig("swd", decay_steps=100, capacity=200),
            PlasticityConfig(probe_every=30),
            (ReDo(every=25), Reset(at=(40,), from_="head")),
            total_timesteps=steps,
            eval_every=0,
            log_every=50,
        )

    whole = neoteny.train(config(400), out=tmp_path / "whole", quiet=True)
    parts = neoteny.train(config(290), out=tmp_path / "parts", quiet=True)
    neoteny.resume(parts, steps=400, quiet=True)
    assert (whole / "metrics.jsonl").read_bytes() == (parts / "metrics.jsonl").read_bytes()
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert {line["remedy"] for line in lines if "remedy" in line} == {"redo", "reset"}
    measured = next(line for line in lines if "probe/critics/grama_inactive" in line)
    assert any(name.startswith("probe/critics/effective_lr/") and "conv_0" in name for name in measured)
