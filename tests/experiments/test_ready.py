"""What cannot run is refused before the first run starts; what failed says why; what the commands say of themselves."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neoteny.agents.agent import Problem
from neoteny.agents.configs import DDQNConfig
from neoteny.cli import main
from neoteny.errors import RunStopped, UsageError
from neoteny.experiments.on_ray import _task
from neoteny.experiments.plan import load_plan
from neoteny.experiments.ready import check_environments, check_memory, replay_bytes
from neoteny.experiments.sweep import why
from neoteny.experiments.work import reason
from neoteny.replay import memory
from neoteny.replay.registry import make_sampler
from neoteny.settings.config import ReplayConfig, TrainConfig
from neoteny.training.setup import _make_buffer

PLAN = """title = "Two seeds"
agent = "td3"
environments = ["Pendulum-v1", "{env}"]
steps = 300
seeds = [1, 2]
settings = {{ capacity = 100_000 }}
methods = {{ uniform = {{}} }}
"""
REGISTERING = """
import gymnasium
gymnasium.register("Mine-v0", "gymnasium.envs.classic_control.pendulum:PendulumEnv", max_episode_steps=200)
gymnasium.register("Failing-v0", lambda: 1 / 0)
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_envs.py").write_text(REGISTERING)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            "Pendlum-v1",
            "there is no environment 'Pendlum-v1': Environment `Pendlum` doesn't exist. Did you mean: `Pendulum`",
        ),
        ("nowhere:Mine-v0", "there is no environment 'nowhere:Mine-v0': No module named 'nowhere'"),
        ("my_envs:Yours-v0", "there is no environment 'my_envs:Yours-v0'"),
        ("my_envs:Failing-v0", "my_envs:Failing-v0 cannot be made: ZeroDivisionError: division by zero"),
        ("dm_control/humanoid-runn-v0", "there is no environment 'dm_control/humanoid-runn-v0'"),
        ("ALE/Brakout-v5", "there is no environment 'ALE/Brakout-v5'"),
        ("CartPole-v1", "td3 needs continuous actions (a Box) and CartPole-v1 has Discrete(2)"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused(
    env: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PLAN.format(env=env))
    assert main(["sweep", str(path), "--out", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert f"neoteny sweep: {path}, line 3: {message}" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("env", "module"), [("dm_control/dog-run-v0", "shimmy"), ("ALE/Breakout-v5", "ale_py")])
def test_a_missing_extra_is_named(env: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PLAN.format(env=env))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=f"line 3: .* needs {module}, which is not installed: "):
        check_environments(load_plan(str(path)).runs)


@pytest.mark.usefixtures("own_module")
def test_an_environment_of_ones_own_may_be_named_with_its_module(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PLAN.format(env="my_envs:Mine-v0"))
    sizes = check_environments(load_plan(str(path)).runs)
    assert sizes == [100_000 * 4 * (3 + 1 + 1 + 3 + 2)] * 4


@pytest.mark.parametrize("replay", ["uniform", "per", "swd-per"])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize(
    "problem",
    [
        Problem((17,), False, 6, np.zeros(6), np.ones(6), 100),
        Problem((4,), False, 2, None, None, 100),
        Problem((4, 84, 84), True, 6, None, None, 100),
    ],
    ids=["vector", "discrete", "pixels"],
)
def test_the_size_is_what_the_buffer_asks_for(
    problem: Problem, num_envs: int, n_step: int, replay: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(
        "CartPole-v1", DDQNConfig(), ReplayConfig(replay, capacity=1_200, n_step=n_step), num_envs=num_envs
    )
    asked: list[int] = []
    monkeypatch.setattr(memory, "require", lambda size, what: asked.append(size))
    _make_buffer(config, problem, make_sampler(replay, "exact", 100, {}))
    assert asked == [replay_bytes(config, problem)]


@pytest.mark.parametrize(
    ("free", "jobs", "message"),
    [
        (6_000_000_000, 4, None),
        (
            5_900_000_000,
            4,
            "4 runs at once, with their replay buffers, need 6.00 GB and 5.90 GB are free: --jobs 3 fits",
        ),
        (3_400_000_000, 16, "4 runs at once, with their replay buffers, need 6.00 GB and 3.40 GB are free: --jobs 2"),
        (1_000_000_000, 4, "need 6.00 GB and 1.00 GB are free: set a smaller capacity, or free memory"),
        (1_000_000_000, 1, "a run with its replay buffer needs 1.50 GB and 1.00 GB are free: set a smaller capacity"),
        (None, 4, None),
    ],
)
def test_runs_that_fit_alone_but_not_together_are_refused(
    free: int | None, jobs: int, message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: free)
    if message is None:
        check_memory([1_000_000_000] * 4, jobs)
    else:
        with pytest.raises(UsageError, match=message):
            check_memory([1_000_000_000] * 4, jobs)


def test_the_largest_runs_may_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000_000_000)
    sizes = [1_000_000_000, 6_000_000_000, 1_000_000_000, 6_000_000_000]
    with pytest.raises(UsageError, match=r"2 runs at once, .* need 13\.00 GB and 10\.00 GB are free: --jobs 1 fits"):
        check_memory(sizes, 2)


def test_a_sweep_asks_for_memory_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = tmp_path / "mine.toml", tmp_path / "runs"
    path.write_text(PLAN.format(env="MountainCarContinuous-v0"))
    monkeypatch.setattr(memory, "available_bytes", lambda: 1_200_000_000)
    monkeypatch.setattr("neoteny.commands.sweep.usable_cores", lambda: list(range(16)))
    for words in ([], ["--dry-run"]):
        assert main(["sweep", str(path), "--out", str(out), *words]) == 2
        assert (
            "4 runs at once, with their replay buffers, need 2.01 GB and 1.20 GB are free: --jobs 2"
            in capsys.readouterr().err
        )
    for run in load_plan(str(path)).runs[1:]:
        (out / run.directory).mkdir(parents=True)
        (out / run.directory / "DONE").touch()  # what is done needs no memory
    monkeypatch.setattr("neoteny.commands.sweep._dry_run", lambda *arguments: 0)
    assert main(["sweep", str(path), "--out", str(out), "--dry-run"]) == 0


def test_why_a_process_failed_is_never_empty(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("\n")
    assert why(3, log) == "it ended with status 3 and wrote nothing"
    log.write_text("a warning\nValueError: no\n\n")
    assert why(1, log) == "ValueError: no"
    assert why(-signal.SIGKILL, log) == "it was ended by SIGKILL, as Linux does when memory runs out"
    assert why(-signal.SIGSEGV, log) == "it was ended by SIGSEGV"


def test_a_reason_is_one_line() -> None:
    noted = ValueError("bad shape\nof 3 and 4")
    noted.add_note("For simplicity, JAX has removed its internal frames")
    assert reason(noted) == "ValueError: bad shape"
    assert reason(MemoryError()) == "MemoryError"
    assert reason(RunStopped("100 updates in a row were not finite")) == "100 updates in a row were not finite"


def test_on_ray_a_failure_is_logged_and_an_error_of_configuration_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig("Pendulum-v1").to_json()
    for error, words, misconfigured in (
        (UsageError("no such thing"), "no such thing", True),
        (KeyError("x"), "KeyError: 'x'", False),
    ):

        def fail(*arguments: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr("neoteny.experiments.on_ray.carry_out", fail)
        log = tmp_path / "logs" / "run.txt"
        assert _task(config, str(tmp_path / "run"), str(log)) == (words, misconfigured)
        assert type(error).__name__ in log.read_text().splitlines()[-1]


@pytest.mark.parametrize("command", ["sweep", "reproduce"])
def test_help_tells_a_newcomer_what_the_command_does(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert {"sweep": "A plan is a TOML file that names", "reproduce": "one of the paper's claims"}[command] in said
    assert {"sweep": "neoteny sweep my-plan.toml", "reproduce": "neoteny reproduce swd/fig2"}[command] in said
    assert "what they take" not in said
