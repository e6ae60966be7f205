"""Output that nobody reads any more, and Ctrl-C before a run begins: a run goes on to its end, and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import neoteny
from killing import every_signal_heard
from neoteny import cli
from neoteny.agents.configs import TD3Config
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from patience import HANG, wait_until

SMALL = (
    "--env Pendulum-v1 --learning-starts 100 --widths 16 --batch-size 16 --capacity 400 --probe-every 0 --eval-every 0 "
    "--log-every 10 --steps 1000"
)


class Broken:
    """A stream whose reader went away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return os.open(os.devnull, os.O_WRONLY)


class Closed(Broken):
    """A stream that was closed."""

    def write(self, text: str) -> int:
        raise ValueError("I/O operation on closed file.")

    def flush(self) -> None:
        raise ValueError("I/O operation on closed file.")

    def isatty(self) -> bool:
        raise ValueError("I/O operation on closed file.")


@pytest.mark.parametrize("stream", [Broken(), Closed(), None], ids=["broken", "closed", "none"])
def test_a_run_goes_on_when_it_cannot_be_watched(stream: Any, tmp_path: Path, monkeypatch: Any) -> None:
    config = TrainConfig(
        "Pendulum-v1",
        TD3Config((16,), batch_size=16, learning_starts=1_000),  # which it says, on its standard error
        ReplayConfig(capacity=400),
        PlasticityConfig(probe_every=0),
        total_timesteps=120,
        eval_every=60,
        eval_episodes=1,
        log_every=10,
    )
    with monkeypatch.context() as broken:
        broken.setattr(sys, "stdout", stream)
        broken.setattr(sys, "stderr", stream)
        run = neoteny.train(config, out=tmp_path / "run")
    assert (run / "DONE").exists()


@pytest.mark.parametrize("command", sorted(cli.TRAINING))
def test_commands_that_train_drop_what_cannot_be_shown(command: str, monkeypatch: Any) -> None:
    ended = []

    def talk(argv: list[str]) -> int:
        for number in range(100):
            print(f"{number} of 100", flush=True)
            print("a warning", file=sys.stderr)
        assert not sys.stdout.isatty()
        ended.append(True)
        return 0

    monkeypatch.setattr(f"neoteny.commands.{command.split()[0]}.main", talk)
    with monkeypatch.context() as broken:
        broken.setattr(sys, "stdout", Broken())
        broken.setattr(sys, "stderr", Broken())
        assert cli.main(command.split()) == 0
        assert isinstance(sys.stdout, Broken)
    assert ended


def python(*words: str, **options: Any) -> subprocess.Popen[str]:
    unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with every_signal_heard():
        return subprocess.Popen([sys.executable, *words], text=True, env=unbuffered, **options)


@pytest.mark.slow
def test_train_piped_into_head(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["-m", "neoteny", "train", "td3", *SMALL.split(), "--out", str(run)]
    process = python(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None  # which is not read again
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 0, said
    assert (run / "DONE").exists()
    assert "rror" not in said


@pytest.mark.slow
def test_train_without_any_output(tmp_path: Path) -> None:
    """Nor standard input: none of the run's own files takes the number of one of them."""
    run = tmp_path / "run"
    command = f"{sys.executable} -m neoteny train td3 {SMALL} --out {run} <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], timeout=HANG).returncode == 0
    assert (run / "DONE").exists()


@pytest.mark.slow
def test_a_sweep_that_nobody_watches(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'title = "Small"\nagent = "td3"\nenvironments = ["Pendulum-v1"]\nsteps = 300\nseeds = [1]\n[settings]\n'
        "learning_starts = 100\nwidths = [16]\nbatch_size = 16\ncapacity = 400\neval_every = 300\neval_episodes = 1\n"
        'probe_every = 0\n[methods]\nuniform = { replay = "uniform" }\n'
    )
    reading, writing = os.pipe()
    os.close(reading)
    words = ["-m", "neoteny", "sweep", str(plan), "--out", str(tmp_path / "runs")]
    process = python(*words, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 0, said
    assert len(list((tmp_path / "runs").rglob("DONE"))) == 1


def test_other_commands_end_quietly_below_head() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = python("-m", "neoteny", "list", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 1
    assert said == ""


def test_other_commands_without_any_output() -> None:
    assert subprocess.run(["sh", "-c", f"{sys.executable} -m neoteny version >&-"], timeout=HANG).returncode == 0


def test_other_commands_say_that_their_output_is_lost() -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "neoteny", "list"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=HANG
        )
    assert process.returncode == 1
    assert process.stderr == "neoteny list: No space left on device\n"


def test_ctrl_c_before_the_first_step_is_one_sentence(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("neoteny.training.start.set_up", interrupted)
    run = tmp_path / "run"
    assert cli.main(["train", "td3", *SMALL.split(), "--out", str(run)]) == 130
    assert capsys.readouterr().err == "\nneoteny train: stopped\n"
    assert not run.exists()


@pytest.mark.slow
def test_ctrl_c_while_libraries_are_loaded(tmp_path: Path) -> None:
    words = ["-m", "neoteny", "train", "td3", *SMALL.split(), "--out", str(tmp_path / "run")]
    process = python(*words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    maps = Path(f"/proc/{process.pid}/maps")
    wait_until(lambda: process.poll() is not None or "jaxlib" in maps.read_text(), "it never loaded jaxlib")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANG)
    assert "Traceback" not in said
    assert process.returncode == 130
