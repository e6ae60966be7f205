"""Presets, the paper's lengths, and what a run says that will do less than a person may think."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neoteny.agents.configs import DDQNConfig, SACConfig
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.runs.run import read_metrics
from neoteny.settings.cautions import cautions
from neoteny.settings.config import ReplayConfig, TrainConfig
from neoteny.settings.presets import complete, start_from
from neoteny.training import start


def test_the_papers_lengths() -> None:
    assert TrainConfig("Hopper-v5").total_timesteps == 1_000_000
    assert TrainConfig("dm_control/dog-run-v0", SACConfig()).total_timesteps == 1_000_000
    breakout = TrainConfig("ALE/Breakout-v5", DDQNConfig())
    assert (breakout.total_timesteps, breakout.eval_every) == (10_000_000, 250_000)


def test_simba_has_its_own_length_and_updates_the_actor_every_time() -> None:
    config = start_from("sac", "simba", "dm_control/dog-run-v0")
    assert config.total_timesteps == 500_000
    assert config.agent == SACConfig(
        num_critics=1, alpha=0.01, target_entropy=-0.5, utd=2.0, log_std_min=-10.0, policy_delay=1
    )
    assert start_from("sac", "simba", "dm_control/dog-run-v0", 7_000).total_timesteps == 7_000


@pytest.mark.parametrize(
    ("agent", "steps", "starts", "every", "decay_steps"),
    [
        ("td3", 50, 5, 5, 5),
        ("td3", 3_000, 128, 300, 300),
        ("td3", 100_000, 2_500, 10_000, 10_000),
        ("td3", 1_000_000, 25_000, 10_000, 100_000),
        ("sac", 10_000, 256, 1_000, 800),
        ("ddqn", 50_000, 4_000, 5_000, 4_000),
        ("ddqn", 10_000_000, 80_000, 250_000, 80_000),
    ],
)
def test_small_scales_to_the_length(agent: str, steps: int, starts: int, every: int, decay_steps: float) -> None:
    config = start_from(agent, "small", "Pendulum-v1", steps)
    assert (config.total_timesteps, config.agent.learning_starts, config.eval_every) == (steps, starts, every)
    swd = replace(config, replay=ReplayConfig("swd"))
    assert complete(swd, "small").replay.decay_steps == pytest.approx(decay_steps)
    given = replace(config, replay=ReplayConfig("swd", decay_steps=7))
    assert complete(given, "small") == given
    assert complete(config, "small") == config  # uniform replay has no T
    assert cautions(complete(swd, "small")) == []


def test_small_needs_a_length() -> None:
    with pytest.raises(UsageError, match="--preset small scales to the length of the run, which is not given"):
        start_from("td3", "small", "Pendulum-v1")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TrainConfig("Pendulum-v1", total_timesteps=3_000), "will make no update: learning starts at step 25,000"),
        (TrainConfig("Pendulum-v1", total_timesteps=3_000), "will make no evaluation: the first is due at step 10,000"),
        (TrainConfig("Pendulum-v1", total_timesteps=25_000), "will make no update"),
        (
            TrainConfig("Pendulum-v1", replay=ReplayConfig("swd"), total_timesteps=30_000),
            "weights change up to age 90,000 and the run has 30,000 steps",
        ),
        (
            TrainConfig("Pendulum-v1", replay=ReplayConfig("swd", capacity=50_000)),
            "weights change up to age 90,000 and the replay buffer holds 50,000",
        ),
        (
            TrainConfig("Pendulum-v1", replay=ReplayConfig(capacity=100)),
            "holds 100 and a batch has 128",
        ),
    ],
)
def test_what_a_run_will_not_do_is_said(config: TrainConfig, message: str) -> None:
    said = cautions(config)
    assert any(message in text for text in said), said
    assert any("--preset small" in text for text in said) or "holds" in message


def test_the_papers_runs_need_no_caution() -> None:
    for agent in ("td3", "sac", "ddqn"):
        config = start_from(agent, "swd-paper", "Pendulum-v1")
        assert cautions(TrainConfig("Pendulum-v1", config.agent, ReplayConfig("swd"))) == []


def test_steps_0_is_refused(capsys: Any) -> None:
    assert main("train td3 --env Pendulum-v1 --steps 0".split()) == 2
    assert "--steps must be >= 1, got 0" in capsys.readouterr().err
    with pytest.raises(UsageError, match="must be >= 1, got 0"):
        TrainConfig("Pendulum-v1", total_timesteps=0)


def test_a_run_without_an_update_says_so_before_and_after(tmp_path: Path, capsys: Any) -> None:
    words = f"train td3 --env Pendulum-v1 --replay swd --steps 300 --out {tmp_path / 'run'}".split()
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "This run will make no update" in said
    assert "--preset small scales learning starts, T and evaluation" in said
    assert "The agent made no update in 300 steps, so its policy is untrained." in said
    assert "The agent was not evaluated" in said


def test_the_small_preset_on_the_command_line(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    words = "train td3 --env Pendulum-v1 --replay swd --steps 400 --preset small --widths 16 --probe-every 0"
    assert main([*words.split(), "--out", str(tmp_path / "run")]) == 0
    assert "no update" not in capsys.readouterr().err
    lines = read_metrics(tmp_path / "run")
    assert [line["step"] for line in lines if "eval_return" in line] == list(range(40, 401, 40))
    assert max(line.get("updates", 0) for line in lines) == 400 - 40
    seen = []
    monkeypatch.setattr(start, "train", lambda config, **_: seen.append(config) or tmp_path)
    main([*words.split(), "--decay-steps", "77", "--learning-starts", "5"])
    assert (seen[0].replay.decay_steps, seen[0].agent.learning_starts) == (77, 5)
    main("train ddqn --env CartPole-v1".split())
    assert seen[1].total_timesteps == 10_000_000
