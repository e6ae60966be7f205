"""The metrics in TensorBoard and in Weights & Biases, whose own package is asked."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import neoteny
from neoteny.agents.configs import TD3Config
from neoteny.errors import UsageError
from neoteny.runs import events
from neoteny.runs.records import read_metrics
from neoteny.runs.trackers import TensorBoard, WeightsAndBiases
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from patience import HANG


def tiny(**options: Any) -> TrainConfig:
    return TrainConfig(
        "Pendulum-v1",
        TD3Config((16,), batch_size=16, learning_starts=100),
        ReplayConfig(capacity=1_000),
        PlasticityConfig(probe_every=0),
        **{"total_timesteps": 200, "eval_every": 0, "log_every": 50, **options},
    )


def test_events_are_those_that_tensorboardx_would_write(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter

    board = TensorBoard(tmp_path / "tensorboard", 1, 1, pytest.fail)
    board.log(50, {"q": 0.5, "updates": 7})
    board.log(100, {"q": 1.5})
    board.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    assert path.name.startswith("events.out.tfevents.")
    data, theirs = path.read_bytes(), RecordWriter(str(tmp_path / "theirs"))
    written = []
    while data:
        length = int.from_bytes(data[:8], "little")
        written.append(Event.FromString(data[12 : 12 + length]))
        theirs.write(data[12 : 12 + length])
        data = data[16 + length :]
    theirs.close()
    assert (tmp_path / "theirs").read_bytes() == path.read_bytes()
    assert [(event.step, {v.tag: v.simple_value for v in event.summary.value}) for event in written] == [
        (0, {}),
        (50, {"q": 0.5, "updates": 7.0}),
        (100, {"q": 1.5}),
    ]


@pytest.mark.parametrize("step", [1, 127, 128, 1_000_000, 2**40])
def test_events_are_the_bytes_of_the_protocol_buffers(step: int) -> None:
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.proto.summary_pb2 import Summary

    numbers = {"q": 0.1, "Größe/ü": -3.5e-42, "x" * 300: 1e39, "n": math.nan, "i": -math.inf, "zero": 0.0}
    values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
    theirs = Event(wall_time=1.75e9, step=step, summary=Summary(value=values))
    assert events.scalars(1.75e9, step, numbers) == theirs.SerializeToString()
    start = Event(wall_time=0.5, step=step, session_log=SessionLog(status=SessionLog.START))
    assert events.restart(0.5, step) == start.SerializeToString()
    assert events.file_start(0.5) == Event(wall_time=0.5, file_version="brain.Event:2").SerializeToString()


def test_a_run_is_logged_without_torch() -> None:
    """tensorboardX imports it, which takes over a second."""
    words = "import sys; from neoteny.runs.trackers import TensorBoard; from pathlib import Path; "
    words += "TensorBoard(Path('nowhere'), 1, 1, print); print({'torch', 'tensorboardX'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=HANG)
    assert ran.stdout == "set()\n"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_SILENT", "true")


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
@pytest.mark.filterwarnings("default")  # of the package's own
def test_a_resumed_run_continues_its_run_of_weights_and_biases(tmp_path: Path) -> None:
    run = neoteny.train(tiny(wandb=True), out=tmp_path / "run", quiet=True)
    neoteny.resume(run, steps=300, quiet=True)
    name = (run / "wandb_id").read_text()
    directories = sorted(path for path in (run / "wandb").glob("offline-run-*") if not path.is_symlink())
    assert len(directories) == 2
    for folder in directories:
        (record,) = folder.glob("*.wandb")
        assert record.name == f"run-{name}.wandb"
        assert b"critic_loss" in record.read_bytes()
    whole = neoteny.train(tiny(total_timesteps=300), out=tmp_path / "whole", quiet=True)
    assert read_metrics(whole) == read_metrics(run)


@pytest.mark.slow
def test_weights_and_biases_without_an_account_is_a_sentence(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = "--env Pendulum-v1 --steps 120 --widths 16 --probe-every 0 --eval-every 0 --wandb --out".split()
    nobody = {
        **{name: value for name, value in os.environ.items() if not name.startswith("WANDB_")},
        **dict.fromkeys(("HOME", "WANDB_CONFIG_DIR"), str(tmp_path)),
        "NETRC": str(tmp_path / "none"),
        "WANDB_BASE_URL": "http://127.0.0.1:9",  # where nothing answers
        "WANDB_ERROR_REPORTING": "false",
    }
    command = [sys.executable, "-m", "neoteny", "train", "td3", *words, str(run)]
    done = subprocess.run(command, env=nobody, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "Weights & Biases did not start" in done.stderr
    assert f"run wandb login, or set WANDB_MODE=offline, and then neoteny resume {run}" in done.stderr
    command = [sys.executable, "-m", "neoteny", "resume", str(run)]
    done = subprocess.run(command, env={**nobody, "WANDB_MODE": "offline"}, capture_output=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    assert (run / "DONE").exists()


def test_without_the_package_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = neoteny.train(tiny(total_timesteps=60), out=tmp_path / "run", quiet=True)
    before = (run / "metrics.jsonl").read_bytes()
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match="--wandb needs wandb, which is not installed"):
        neoteny.train(tiny(wandb=True), out=run, overwrite=True, quiet=True)
    assert (run / "metrics.jsonl").read_bytes() == before


def test_a_failure_of_weights_and_biases_is_said_once() -> None:
    class Failing:
        def log(self, numbers: Any, step: int) -> None:
            raise ConnectionError("the service ended")

    said: list[str] = []
    tracker = WeightsAndBiases.__new__(WeightsAndBiases)
    tracker._run, tracker._say = Failing(), said.append
    for step in (10, 20):
        tracker.log(step, {"q": 1.0})
    tracker.close()
    assert said == ["Weights & Biases failed at step 10 (the service ended), and is told no more of this run."]
