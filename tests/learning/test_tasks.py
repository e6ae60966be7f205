"""Real tasks: small ones solved, and a short real run of each agent on its own suite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from neoteny.runs.run import read_metrics


def train(out: Path, *words: str) -> list[dict[str, float]]:
    """Run the command in a process of its own, with one thread of maths, and return its metrics."""
    command = [sys.executable, "-m", "neoteny", "train", *words, "--threads", "1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return read_metrics(out)


def evaluations(metrics: list[dict[str, float]]) -> list[float]:
    return [line["eval_return"] for line in metrics if "eval_return" in line]


@pytest.mark.slow
def test_td3_solves_pendulum(tmp_path: Path) -> None:
    words = [
        "td3",
        "--env",
        "Pendulum-v1",
        "--replay",
        "swd",
        "--steps",
        "14_000",
        "--learning-starts",
        "1_000",
        "--actor-lr",
        "1e-3",
    ]
    metrics = train(tmp_path / "run", *words, "--decay-steps", "5_000", "--eval-every", "2_000")
    assert max(evaluations(metrics)[-3:]) > -200


@pytest.mark.slow
def test_sac_solves_pendulum(tmp_path: Path) -> None:
    words = [
        "sac",
        "--env",
        "Pendulum-v1",
        "--replay",
        "swd",
        "--steps",
        "7_000",
        "--learning-starts",
        "500",
        "--lr",
        "1e-3",
    ]
    small = [
        "--critic-width",
        "64",
        "--critic-blocks",
        "1",
        "--actor-width",
        "64",
        "--decay-steps",
        "5_000",
        "--eval-every",
        "1_000",
    ]
    assert max(evaluations(train(tmp_path / "run", *words, *small))[-3:]) > -250  # at random: -1,200


@pytest.mark.slow
def test_ddqn_solves_cartpole(tmp_path: Path) -> None:
    words = [
        "ddqn",
        "--env",
        "CartPole-v1",
        "--replay",
        "swd",
        "--steps",
        "40_000",
        "--learning-starts",
        "1_000",
        "--lr",
        "1e-3",
        "--batch-size",
        "128",
    ]
    more = [
        "--target-every",
        "200",
        "--utd",
        "0.5",
        "--exploration-fraction",
        "0.2",
        "--decay-steps",
        "10_000",
        "--eval-every",
        "5_000",
    ]
    assert max(evaluations(train(tmp_path / "run", *words, *more))[-3:]) >= 475


@pytest.mark.slow
def test_a_short_real_run_of_td3_on_hopper(tmp_path: Path) -> None:
    words = [
        "td3",
        "--env",
        "Hopper-v5",
        "--replay",
        "swd",
        "--steps",
        "1_500",
        "--learning-starts",
        "1_000",
        "--eval-every",
        "1_500",
    ]
    metrics = train(tmp_path / "run", *words, "--eval-episodes", "2")
    assert len(evaluations(metrics)) == 1
    assert [line for line in metrics if "updates" in line][-1]["updates"] == 500


@pytest.mark.slow
def test_a_short_real_run_of_sac_on_humanoid(tmp_path: Path) -> None:
    words = [
        "sac",
        "--env",
        "dm_control/humanoid-run-v0",
        "--replay",
        "swd",
        "--utd",
        "2",
        "--steps",
        "530",
        "--learning-starts",
        "500",
    ]
    metrics = train(tmp_path / "run", *words, "--log-every", "10", "--eval-every", "0")
    last = [line for line in metrics if "updates" in line][-1]
    assert (last["updates"], last["frames"], last["realised_utd"]) == (60, 1_060, 2.0)


@pytest.mark.slow
def test_a_short_real_run_of_ddqn_on_breakout(tmp_path: Path) -> None:
    words = [
        "ddqn",
        "--env",
        "ALE/Breakout-v5",
        "--replay",
        "swd",
        "--steps",
        "500",
        "--learning-starts",
        "300",
        "--capacity",
        "100_000",
    ]
    metrics = train(tmp_path / "run", *words, "--log-every", "100", "--eval-every", "0")
    last = [line for line in metrics if "updates" in line][-1]
    assert (last["updates"], last["frames"]) == (50, 2_000)


@pytest.mark.slow
def test_sac_balances_deepmind_controls_cartpole(tmp_path: Path) -> None:
    words = (
        "sac --env dm_control/cartpole-balance-v0 --replay swd --steps 12_000 --learning-starts 1_000 --lr 1e-3".split()
    )
    small = "--critic-width 64 --critic-blocks 1 --actor-width 32 --batch-size 128 --tau 0.02 --policy-delay 1".split()
    more = "--no-normalise --decay-steps 5_000 --eval-every 3_000 --eval-episodes 3".split()
    assert max(evaluations(train(tmp_path / "run", *words, *small, *more))[-2:]) > 800
