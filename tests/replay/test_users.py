"""A schedule of the user's own, by name and as an instance: its parameters, its defaults, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neoteny as n
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.experiments.configuring import config_of
from neoteny.replay.registry import make_sampler
from neoteny.runs.records import read_config
from neoteny.settings.config import ReplayConfig, TrainConfig

MODULE = """
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class HalfLife:
    steps: float
    floor: float = 0.0

    def weight(self, age):
        return self.floor + 0.5 ** (age / self.steps)


class OwnT:
    def __init__(self, decay_steps=500, min_weight=0.25):
        self.decay_steps, self.min_weight = decay_steps, min_weight

    def weight(self, age):
        return np.maximum(self.min_weight, 1 - age / self.decay_steps)


class Plain:
    def weight(self, age):
        return 1 / age


class Scalar:
    def weight(self, age):
        return 1.0 if age < 5 else 0.5


class Picky:
    def __init__(self, steps=1):
        if steps < 1:
            raise ValueError(f"steps must be >= 1, got {steps}")

    def weight(self, age):
        return 1 / age


class Anything:
    def __init__(self, **numbers):
        self.numbers = numbers

    def weight(self, age):
        return age ** -float(self.numbers["power"])


def function(age):
    return age
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module in the current directory, which is not on the path."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import not_installed_anywhere")
    (tmp_path / "wrong.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    before = list(filter(None, sys.path))
    yield
    assert list(filter(None, sys.path)) == before  # "" is the command line's own
    sys.modules.pop("mine", None)


def schedule_of(config: ReplayConfig, default_decay_steps: float = 80_000) -> Any:
    sampler: Any = make_sampler(config.replay, config.replay_sampler, default_decay_steps, config.numbers())
    return sampler.schedule


def test_a_schedule_from_the_current_directory_with_parameters(mine: Any) -> None:
    schedule = schedule_of(ReplayConfig("mine:HalfLife", replay_arg={"steps": 500, "floor": 0.1}))
    assert (type(schedule).__name__, schedule.steps, schedule.floor) == ("HalfLife", 500, 0.1)
    assert schedule_of(ReplayConfig("mine:Plain")).weight(np.array([4])) == [0.25]
    assert schedule_of(ReplayConfig("mine:Anything", replay_arg={"power": 2})).weight(np.array([4.0])) == [1 / 16]


def test_the_default_of_a_users_constructor_wins(mine: Any) -> None:
    own = schedule_of(ReplayConfig("mine:OwnT"), default_decay_steps=100_000)
    assert (own.decay_steps, own.min_weight) == (500, 0.25)
    assert schedule_of(ReplayConfig("mine:OwnT", decay_steps=70)).decay_steps == 70
    assert schedule_of(ReplayConfig("mine:OwnT", replay_arg={"decay_steps": 70})).decay_steps == 70
    assert schedule_of(ReplayConfig("swd"), default_decay_steps=100_000).decay_steps == 100_000  # ours has the agent's


def test_parameters_have_one_form_however_they_are_given() -> None:
    alike = [
        {"steps": 500, "floor": 0.1},
        {"floor": np.float64(0.1), "steps": 500.0},
        ("steps=500", "floor=0.1"),
        ("floor=0.10", "steps=5e2"),
        ["floor=1e-1", "steps=500.0"],
    ]
    configs = {ReplayConfig("mine:HalfLife", replay_arg=parameters) for parameters in alike}
    assert [config.replay_arg for config in configs] == [("floor=0.1", "steps=500")]
    assert len({TrainConfig("E", replay=config).run_id() for config in configs}) == 1
    kinds = {"a": True, "b": "true", "c": "word", "d": 80_000, "e": None, "f": "3"}
    assert ReplayConfig("m:C", replay_arg=kinds).numbers() == kinds
    assert ReplayConfig("m:C", replay_arg=["c=word", "d=80_000"]).numbers() == {"c": "word", "d": 80_000}


def test_parameters_survive_json_and_plans() -> None:
    config = TrainConfig("E", replay=ReplayConfig("mine:HalfLife", replay_arg={"steps": 500, "name": "x"}))
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))).replay == config.replay
    assert dataclasses.replace(config.replay, capacity=10).replay_arg == config.replay.replay_arg
    settings = {"replay": "mine:HalfLife", "replay_arg": {"steps": 500, "name": "x"}}  # as a TOML file gives it
    assert config_of("td3", "swd-paper", "E", 1, 100, settings).replay == config.replay


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"replay": "mine:HalfLife", "replay_arg": {"tau": 3}}, "has no tau: it takes steps, floor"),
        ({"replay": "mine:Plain", "replay_arg": {"tau": 3}}, "has no tau: it takes no parameters"),
        ({"replay": "mine:HalfLife", "window_steps": 3}, "has no window_steps: it takes steps, floor"),
        ({"replay": "mine:HalfLife"}, "needs steps, which it has no default for: add --replay-arg steps=VALUE"),
        ({"replay": "mine:Nothing"}, "--replay mine:Nothing: mine has no Nothing"),
        ({"replay": "nowhere:X"}, "No module named 'nowhere' .run where it is, or put its directory into PYTHONPATH"),
        ({"replay": "broken:X"}, "No module named 'not_installed_anywhere'"),
        ({"replay": "wrong:X"}, "ZeroDivisionError: division by zero"),
        ({"replay": "mine:Scalar"}, r"weight\(age\) must take an array of ages and return an array of weights"),
        ({"replay": "mine:Picky", "replay_arg": {"steps": 0}}, "mine:Picky: steps must be >= 1, got 0"),
        ({"replay": "mine:function", "replay_arg": {"age": 3}}, r"an object with weight\(age\)"),
        ({"replay": "mine:np"}, "is not a callable object"),
        ({"replay": "__main__:Mine"}, "a class of a script can only be used by that script"),
        ({"replay": "swdd"}, "there is no replay 'swdd': choose from uniform, swd,"),
        ({"replay": "swd", "replay_arg": {"decay_steps": 3}}, "--replay swd is ours: its numbers are flags"),
        ({"replay": "mine:OwnT", "decay_steps": 3, "replay_arg": {"decay_steps": 4}}, "decay_steps is given as a flag"),
        ({"replay": "mine:OwnT", "replay_arg": ["steps"]}, "must be name=value, such as steps=500, got 'steps'"),
        ({"replay": "mine:OwnT", "replay_arg": "steps"}, "must be name=value, such as steps=500, got 'steps'"),
        ({"replay": "mine:OwnT", "replay_arg": ["a=1", "a=2"]}, "gives a twice: give it once"),
        ({"replay": "mine:OwnT", "replay_arg": {"a": [1]}}, r"a must be a number, a text, true or false, got \[1\]"),
        ({"replay": n.LinearDecay}, r"an object with weight\(age\), such as LinearDecay\(\); got <class"),
        ({"replay": n.LinearDecay(), "decay_steps": 5}, "has its own numbers: leave out decay_steps"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_sentence(mine: Any, config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        schedule_of(ReplayConfig(**config))


SHORT = "--env Pendulum-v1 --widths 16 --batch-size 16 --learning-starts 50 --capacity 500 --eval-every 0"


def test_a_run_with_it_by_the_command_line_resumes(mine: Any) -> None:
    words = [*SHORT.split(), "--probe-every", "0", "--steps", "100", "--out", "run", "--replay", "mine:HalfLife"]
    assert main(["train", "td3", *words, "--replay-arg", "steps=5e1", "--replay-arg", "floor=0.5"]) == 0
    config, _ = read_config(Path("run"))
    assert config.replay == ReplayConfig("mine:HalfLife", replay_arg={"steps": 50, "floor": 0.5}, capacity=500)
    sys.modules.pop("mine")
    assert main(["resume", "run", "--steps", "150"]) == 0


def test_the_worked_example_of_the_documentation(mine: Any) -> None:
    """docs/replay.md: the module, the command, the plan and the instance make the same run."""
    page = (Path(__file__).parents[2] / "docs" / "replay.md").read_text()
    page = page[page.index("## Your own schedule") :]
    (module,) = re.findall(r"^```python\n(.*?class HalfLife.*?)^```", page, re.MULTILINE | re.DOTALL)
    (command,) = re.findall(r"^neoteny train (.*--replay mine:HalfLife.*)$", page, re.MULTILINE)
    (plan,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (instance,) = re.findall(r"`ReplayConfig\(replay=(HalfLife\(.*?\))\)`", page)
    Path("mine.py").write_text(module)
    short = "--widths 16 --batch-size 16 --learning-starts 50 --eval-every 0 --probe-every 0 --steps 100 --out run"
    assert main(["train", *command.split(), *short.split()]) == 0
    ran = read_config(Path("run"))[0].replay
    settings = tomllib.loads(plan)["methods"]["half-life"]
    assert ran == config_of("td3", "swd-paper", "Hopper-v5", 1, 100, settings).replay
    assert ran == ReplayConfig(replay=eval(instance, vars(sys.modules["mine"])))


def test_a_run_with_it_in_a_sweeps_process(mine: Any) -> None:
    """Where Python does not put the current directory on the path itself."""
    settings = {"widths": [16], "batch_size": 16, "learning_starts": 50, "capacity": 500, "eval_every": 0}
    settings |= {"probe_every": 0, "replay": "mine:HalfLife", "replay_arg": {"steps": 50}}
    config = config_of("td3", "swd-paper", "Pendulum-v1", 1, 100, settings)
    done = subprocess.run(
        [sys.executable, "-m", "neoteny.experiments.work", "run"],
        input=json.dumps(config.to_json()),
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("run/DONE").exists()


@dataclass(frozen=True)
class Here:
    """A user's schedule, as an instance."""

    steps: float = 9.0
    name: str = "x"

    def weight(self, age: np.ndarray) -> np.ndarray:
        return 0.5 ** (age / self.steps)


class Bare:
    """One without parameters."""

    def weight(self, age: np.ndarray) -> np.ndarray:
        return 1 / age


class Hiding:
    """One whose parameters cannot be known."""

    def __init__(self, steps: float) -> None:
        self.half_life = steps

    def weight(self, age: np.ndarray) -> np.ndarray:
        return 0.5 ** (age / self.half_life)


def test_an_instance_is_written_down_and_made_again() -> None:
    for schedule in (
        Here(),
        Here(500, "y"),
        n.LinearDecay(np.int64(70), np.float32(0.25)),
        n.EmphasizeRecent(0.99, 10),
        n.Uniform(),
    ):
        config = TrainConfig("E", replay=ReplayConfig(schedule, capacity=1_000))
        again = TrainConfig.from_json(json.loads(json.dumps(config.to_json())))
        assert schedule_of(again.replay) == schedule
    assert ReplayConfig(Here(500)).replay == f"{__name__}:Here"
    assert ReplayConfig(Here(500)).replay_arg == ('name="x"', "steps=500")
    assert isinstance(schedule_of(ReplayConfig(Bare())), Bare)
    assert ReplayConfig(n.LinearDecay(70, 0.2)) == ReplayConfig("swd", decay_steps=70, min_weight=0.2)


def test_an_instance_that_could_not_be_made_again_is_refused() -> None:
    class Local(Bare):
        pass

    with pytest.raises(UsageError, match=r"Local cannot be imported: define it at the top level of a module"):
        ReplayConfig(Local())
    with pytest.raises(UsageError, match="its parameters are not known: make Hiding a dataclass, or give replay="):
        ReplayConfig(Hiding(3))
    with pytest.raises(UsageError, match="steps must be a number, a text, true or false"):
        ReplayConfig(Here((1, 2)))  # type: ignore[arg-type]
