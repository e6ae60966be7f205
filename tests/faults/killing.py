"""Runs that are killed and resumed, in processes of their own, and what must hold of them."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from neoteny.runs.inspect import facts_of
from neoteny.runs.run import read_lines
from patience import HANG

AGENTS = {
    "td3": "--env Hopper-v5 --steps 6000 --learning-starts 300 --capacity 1500 --widths 16 --batch-size 16 "
    "--probe-every 500 --remedy redo --redo-every 700",
    "sac": "--env dm_control/cartpole-swingup-v0 --steps 3500 --learning-starts 300 --capacity 1200 --actor-width 8 "
    "--critic-width 8 --critic-blocks 1 --batch-size 16 --probe-every 0 "
    "--remedy shrink-perturb --shrink-every 900",
    "ddqn": "--env ALE/Breakout-v5 --steps 2600 --learning-starts 300 --capacity 900 --cnn-width 16 --batch-size 8 "
    "--probe-every 0",
}
REPLAYS = {"uniform": "--replay uniform", "swd": "--replay swd --decay-steps 600", "per": "--replay per"}
COMMON = "--threads 2 --log-every 50 --eval-every 1000 --eval-episodes 1 --checkpoint-every 0.4"


def words(agent: str, replay: str) -> list[str]:
    """The command that trains this."""
    return ["train", agent, *f"{AGENTS[agent]} {REPLAYS[replay]} {COMMON}".split()]


def start(*arguments: str, cores: set[int] | None = None) -> subprocess.Popen[str]:
    """Neoteny in a process of its own, pinned as the thread that starts it."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or usual)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "neoteny", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    finally:
        os.sched_setaffinity(0, usual)


def finish(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=HANG)
    assert process.returncode == 0, errors
    return errors


def committed(run: Path) -> int:
    """The step of the newest checkpoint."""
    return max((int(path.stem) for path in (run / "checkpoint").glob("*.json")), default=-1)


def kill(process: subprocess.Popen[str], run: Path, rng: random.Random, while_saving: bool) -> bool:
    """Kill it after a checkpoint of its own: at a random moment, or amid a save. Whether it was still running."""
    before = committed(run)
    while process.poll() is None and committed(run) <= max(before, 0):
        time.sleep(0.005)
    if while_saving:
        deadline = time.monotonic() + 3
        while process.poll() is None and time.monotonic() < deadline and not list((run / "checkpoint").rglob("*.tmp")):
            pass
    else:
        time.sleep(rng.uniform(0, 1.2))
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return alive


def train_under_fire(command: list[str], run: Path, kills: int, seed: int) -> list[int]:
    """Train, killed so often, to the end; the last committed checkpoint at each kill.

    The first life is pinned to one core in every other run, and all later ones may use every core.
    """
    rng = random.Random(seed)
    process = start(*command, "--out", str(run), cores={0} if seed % 2 else None)
    at = []
    for index in range(kills):
        if not kill(process, run, rng, while_saving=(seed + index) % 3 == 0):
            break
        at.append(committed(run))
        process = start("resume", str(run))
    if (run / "DONE").exists():
        process.communicate()
    else:
        finish(process)
    return at


def check_lives(run: Path, at: list[int]) -> None:
    """Every life began at the last committed checkpoint, and little was done twice."""
    lines = read_lines(run / "timing.jsonl")
    births = [index for index, line in enumerate(lines) if "life" in line]
    lives = [lines[first:last] for first, last in zip(births, [*births[1:], len(lines)], strict=True)]
    assert [life[0]["first_step"] for life in lives] == [0, *at]
    marks = [[line["step"] for line in life if "life" in line or "checkpoint_seconds" in line] for life in lives]
    between = max(b - a for life in marks for a, b in itertools.pairwise(life))
    executed = sum(life[-1]["step"] - life[0]["step"] for life in lives)
    total = lives[-1][-1]["step"]
    assert executed <= total + len(at) * max(between, *lost_after(lives, marks), 1)


def lost_after(lives: list[list[dict[str, Any]]], marks: list[list[int]]) -> list[int]:
    """Steps of each life after its last checkpoint: a kill can come late in the interval."""
    return [life[-1]["step"] - mark[-1] for life, mark in zip(lives, marks, strict=True)]


def same(run: Path, other: Path) -> None:
    """Both came to the same: parameters, optimiser, random state, replay, environment and metrics."""
    a, b = (facts_of(directory)["checkpoint"] for directory in (run, other))
    assert a["step"] == b["step"]
    assert a["digests"] == b["digests"]
    assert (run / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert json.dumps(a["damaged"]) == "[]"
