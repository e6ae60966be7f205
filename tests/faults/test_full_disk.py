"""A disk that is full for a moment: the run says so, goes on, hears signals, and loses none of its metrics."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import neoteny
from killing import same
from neoteny.agents.configs import TD3Config
from neoteny.errors import RunStopped
from neoteny.training.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training.lines import Lines
from neoteny.training.records import read_lines, read_metrics
from neoteny.training.trackers import TensorBoard
from patience import HANG, wait_until


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file grow past `size` bytes: the kernel writes what fits and then refuses, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_lines_wait_until_the_disk_takes_them(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = Lines(path)
    assert lines.append({"step": 1}) is None
    with files_of_at_most(20):  # the second line is cut short, and the third does not begin
        for step in (2, 3):
            error = lines.append({"step": step})
            assert error is not None
            assert error.strerror == "File too large"
        with pytest.raises(OSError, match="File too large"):
            lines.sync()
    assert path.read_bytes() == b'{"step": 1}\n{"step":'
    assert lines.append({"step": 4}) is None
    assert read_lines(path) == [{"step": 1}, {"step": 2}, {"step": 3}, {"step": 4}]
    assert lines.sync() == path.stat().st_size
    lines.close()


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "timing.jsonl"
    path.write_bytes(b'{"step": 1}\n{"st')
    lines = Lines(path)
    assert path.read_bytes() == b'{"step": 1}\n{"st'
    lines.append({"step": 2})
    lines.close()
    assert read_lines(path) == [{"step": 1}, {"step": 2}]


def events(path: Path) -> list[Any]:
    """The events of a file, whose checksums are looked at."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    data, found = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        record = data[12 : 12 + length]
        assert int.from_bytes(data[8:12], "little") == masked_crc32c(data[:8])
        assert int.from_bytes(data[12 + length : 16 + length], "little") == masked_crc32c(record)
        found.append(Event.FromString(record))
        data = data[16 + length :]
    return found


def test_events_that_the_disk_does_not_take_are_lost_whole(tmp_path: Path) -> None:
    said: list[str] = []
    board = TensorBoard(tmp_path / "tensorboard", 2, 0, said.append)
    with files_of_at_most(100):  # the third event is cut short
        for step in range(6):
            board.log(step, {"q": step / 2})
    board.log(6, {"q": 3.0})
    board.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    version, start, *logged = events(path)
    assert version.file_version == "brain.Event:2"
    assert start.session_log.status == start.session_log.START
    steps = [event.step for event in logged]
    assert steps[-1] == 6
    assert 1 <= len(steps) < 6
    assert all(event.summary.value[0].simple_value == event.step / 2 for event in logged)
    assert said == [
        f"TensorBoard's events at step {len(steps) - 1} could not be written (File too large) and are lost."
    ]


class Filling(gym.Env):
    """Counts, and can be saved; between the steps 120 and 200 no file can be written to if `fills`."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    count = 0

    def __init__(self, fills: bool = False, until: int = 200) -> None:
        self.fills, self.until = fills, until

    def reset(self, **arguments: Any) -> Any:
        super().reset(**arguments)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.fills and self.count in (120, self.until):
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 if self.count == 120 else most, most))
        obs = np.sin(self.count * np.arange(1, 4) + action).astype(np.float32)
        return obs, float(obs[0]), False, self.count % 40 == 0, {}

    def get_state(self) -> dict[str, int]:
        return {"count": self.count}

    def set_state(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def config(**options: Any) -> TrainConfig:
    return TrainConfig(
        "counting",
        TD3Config((16,), batch_size=16, learning_starts=100),
        ReplayConfig(capacity=1_000),
        PlasticityConfig(probe_every=0),
        **{"total_timesteps": 300, "eval_every": 0, "log_every": 10, "checkpoint_every": 1e-9, **options},
    )


def test_a_disk_that_is_full_for_a_moment_changes_nothing(tmp_path: Path, capsys: Any) -> None:
    with files_of_at_most(resource.getrlimit(resource.RLIMIT_FSIZE)[0]):
        full = neoteny.train(config(), out=tmp_path / "full", make_env=lambda: Filling(True), quiet=True)
    said = capsys.readouterr().err
    assert said.count("metrics.jsonl could not be written at step 120 (File too large); the run goes on") == 1
    assert said.count("TensorBoard's events at step 120 could not be written") == 1
    assert "No checkpoint could be made at step 120 (File too large); the one before is whole." in said
    same(full, neoteny.train(config(), out=tmp_path / "never", make_env=Filling, quiet=True))


@pytest.mark.parametrize("every", [0, 1e9])
def test_a_disk_that_stays_full_stops_a_run_at_its_end(every: float, tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = config(checkpoint_every=every)
    with (
        files_of_at_most(resource.getrlimit(resource.RLIMIT_FSIZE)[0]),
        pytest.raises(RunStopped, match="the end of the run could not be saved" if every else "File too large"),
    ):
        neoteny.train(small, out=run, make_env=lambda: Filling(True, until=10_000), quiet=True)
    assert not (run / "DONE").exists()


SMALL = (
    "--env Pendulum-v1 --learning-starts 100 --widths 16 --batch-size 16 --capacity 400 --probe-every 0 --eval-every 0 "
    "--log-every 10 --checkpoint-every 1000"
).split()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "none", str(path)], capture_output=True).returncode:
        pytest.skip("no right to mount a small file system here")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill_once_it_logs(disk: Path, run: Path, process: subprocess.Popen[bytes], said: Path) -> None:
    """Fill the disk when the run has logged a little, and wait until it has noticed."""
    wait_until(lambda: len(read_metrics(run)) > 20 or process.poll() is not None, "it logged nothing")
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(shutil.disk_usage(disk).free or 1))
    lost = "TensorBoard's events at step"
    wait_until(lambda: lost in said.read_text() or process.poll() is not None, "it did not notice the full disk")
    assert process.poll() is None, said.read_text()


@pytest.mark.slow
def test_a_real_disk_that_is_full_for_a_moment(disk: Path, tmp_path: Path) -> None:
    run, said = disk / "run", tmp_path / "said.txt"
    words = [sys.executable, "-m", "neoteny", "train", "td3", *SMALL, "--steps", "4000", "--out", str(run)]
    with said.open("wb") as file:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=file)
    try:
        fill_once_it_logs(disk, run, process, said)
        (disk / "filler").unlink()
        assert process.wait(timeout=HANG) == 0, said.read_text()
    finally:
        process.kill()
        process.wait()
    assert "Exception in thread" not in said.read_text()
    assert [line["step"] for line in read_metrics(run) if "updates" in line] == list(range(10, 4_001, 10))
    (path,) = (run / "tensorboard").iterdir()
    assert [event.step for event in events(path) if event.summary.value][-1] == 4_000


@pytest.mark.slow
def test_a_run_on_a_full_disk_hears_signals(disk: Path, tmp_path: Path) -> None:
    run, said = disk / "run", tmp_path / "said.txt"
    words = [sys.executable, "-m", "neoteny", "train", "td3", *SMALL, "--steps", "1000000", "--out", str(run)]
    with said.open("wb") as file:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=file)
    try:
        fill_once_it_logs(disk, run, process, said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG) == 128 + signal.SIGTERM, said.read_text()
    finally:
        process.kill()
        process.wait()
    assert f"saved at step 0, to go on with: neoteny resume {run}" in said.read_text()
