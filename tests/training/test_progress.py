"""What a person watching a run sees."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import neoteny
from neoteny.agents.configs import TD3Config
from neoteny.runs.records import read_metrics
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training.playing import described
from neoteny.training.progress import Progress


def tiny(steps: int) -> TrainConfig:
    return TrainConfig(
        "Pendulum-v1",
        TD3Config((16,), batch_size=16, learning_starts=100),
        ReplayConfig(capacity=1_000),
        PlasticityConfig(probe_every=0),
        total_timesteps=steps,
        eval_every=150,
        eval_episodes=2,
        log_every=50,
    )


@pytest.mark.parametrize("steps", [300, 320])
def test_each_evaluation_is_printed_when_it_is_made(
    steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = neoteny.train(tiny(steps), out=tmp_path / "run")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    logged = {line["step"]: line["eval_return"] for line in read_metrics(run) if "eval_return" in line}
    assert list(logged) == [150, 300]
    evaluations = [line for line in lines if "evaluation" in line]
    assert len(evaluations) == 2
    for line, (step, value) in zip(evaluations, logged.items(), strict=True):
        assert line.startswith(f"{step} / {steps}  evaluation: 2 episodes: mean return {value:.2f}, from ")
        at = lines.index(line)
        assert lines[at - 1].startswith(f"{step} / {steps}")  # right after the metrics of its step
    assert all("eval " not in line for line in lines)  # no older one, beside newer metrics
    assert lines[-1].startswith(f"{steps} / {steps}")


def test_an_evaluation_stays_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    progress = Progress(tiny(300), quiet=False)
    progress.tick(150, log=True)
    progress.evaluated(150, [1.0, 2.0])
    progress.tick(200, log=True)
    shown = capsys.readouterr().out
    first, evaluation, last = (re.escape("\r\x1b[K") + f" +{text}" for text in ("150 .*", "150 .*to 2.00\n", "200 .*"))
    assert re.fullmatch(first + evaluation + last, shown)


def test_a_quiet_run_prints_no_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    Progress(tiny(300), quiet=True).evaluated(150, [1.0])
    assert capsys.readouterr().out == ""


def test_an_evaluation_in_words() -> None:
    nan, inf = float("nan"), float("inf")
    assert described([3.0]) == "1 episode: mean return 3.00"
    assert described([1.0, 3.0]) == "2 episodes: mean return 2.00, from 1.00 to 3.00"
    assert described([1.0, nan, 3.0, -inf]) == (
        "2 episodes: mean return 2.00, from 1.00 to 3.00; left out: episodes 2, 4 of 4, where the environment returned "
        "NaN or infinity"
    )
    assert described([nan, nan]) == (
        "there is no mean return: the environment returned NaN or infinity in all of 2 episodes"
    )
