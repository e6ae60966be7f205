"""What the tests of damaged files share: a small run, an edit, and what a command says."""

from __future__ import annotations

from pathlib import Path

import pytest

import neoteny
from neoteny.agents.configs import TD3Config
from neoteny.cli import main
from neoteny.training.config import PlasticityConfig, ReplayConfig, TrainConfig


def train_small(out: Path) -> Path:
    """A run of 300 steps with two evaluations."""
    config = TrainConfig(
        "Pendulum-v1",
        TD3Config((16,), batch_size=16, learning_starts=100),
        ReplayConfig(capacity=1_000),
        PlasticityConfig(probe_every=0),
        total_timesteps=300,
        eval_every=150,
        eval_episodes=1,
        log_every=50,
    )
    return neoteny.train(config, out=out, quiet=True)


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def said_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """A command's exit status, and what it said: on failure in one line."""
    capsys.readouterr()
    status = main(list(words))
    out, err = capsys.readouterr()
    assert status in (0, 2), err
    if status == 2:
        assert err.startswith(f"neoteny {words[0]}: "), err
        assert err.count("\n") == 1, err
    return status, out, err
