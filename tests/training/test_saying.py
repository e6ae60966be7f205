"""What is printed or logged is what another program can use: commands quoted for a shell, lines that are JSON."""

from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import neoteny
from neoteny import cli
from neoteny.agents.configs import TD3Config
from neoteny.commands.done import print_done
from neoteny.errors import RunStopped, UsageError
from neoteny.runs.checkpoint import Checkpoints
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig

PLACE = "a run; touch 'it'"


def tiny(**options: Any) -> TrainConfig:
    return TrainConfig(
        "Odd",
        agent=TD3Config((16,), batch_size=16, learning_starts=30),
        replay=ReplayConfig(capacity=400),
        plasticity=PlasticityConfig(probe_every=0),
        **{"eval_every": 0, "total_timesteps": 60, **options},
    )


class Odd(gym.Env):
    """Episodes of 10 steps with these rewards, one episode after the other."""

    observation_space = gym.spaces.Box(-9, 9, (3,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, rewards: tuple[float, ...] = (1.0,)) -> None:
        self.rewards, self.episode = rewards, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.episode = 0, self.episode + 1
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = self.rewards[self.episode % len(self.rewards)]
        return np.zeros(3, np.float32), reward, False, self.steps == 10, {}


def strictly(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_returns_that_are_not_finite_are_null_in_the_metrics(tmp_path: Path) -> None:
    returns = iter([(1.0,), (float("nan"),), (2.0,), (float("inf"),)])
    run = neoteny.train(
        tiny(eval_every=60, eval_episodes=3),
        out=tmp_path / "run",
        make_env=lambda: Odd(next(returns, (1.0,))),
        quiet=True,
    )
    lines = [strictly(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluation = next(line for line in lines if "eval_returns" in line)
    assert evaluation["eval_return"] is None
    assert None in evaluation["eval_returns"]
    assert any(isinstance(value, float) for value in evaluation["eval_returns"])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "neoteny list: No space left on device"),
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "some/file"), "neoteny list: Permission denied: some/file"),
        (OSError("the pipe is gone"), "neoteny list: the pipe is gone"),
        (TimeoutError(), "neoteny list: TimeoutError"),
    ],
)
def test_an_error_of_the_system_names_no_file_that_it_does_not_know(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr("neoteny.commands.list.main", fail)
    assert cli.main(["list"]) == 1
    assert capsys.readouterr().err == f"{said}\n"


def command_in(text: str, word: str) -> list[str]:
    """The words that a shell makes of the command in `text` that begins with neoteny and `word`."""
    return shlex.split(text[text.index(f"neoteny {word}") :])


def test_commands_can_be_pasted_into_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / PLACE
    with pytest.raises(RunStopped) as stopped:
        neoteny.train(tiny(total_timesteps=300), out=place, make_env=lambda: Odd((float("nan"),)), quiet=True)
    assert command_in(str(stopped.value).split(" (")[0], "resume") == ["neoteny", "resume", str(place)]
    with pytest.raises(UsageError, match="already contains a run") as taken:
        neoteny.train(tiny(), out=place, make_env=Odd, quiet=True)
    assert command_in(str(taken.value).split(", name another")[0], "resume") == ["neoteny", "resume", str(place)]
    print_done(place)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "neoteny " in line)
    assert shlex.split(line) == ["neoteny", "inspect", str(place)]  # it cannot be evaluated without its make_env
    assert Checkpoints(tmp_path).how_to_go_on() == "there is no checkpoint to go on from"
