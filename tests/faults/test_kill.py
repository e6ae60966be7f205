"""SIGKILL at any moment: the resumed run ends in the same bits as one that was left alone."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from killing import AGENTS, REPLAYS, check_lives, committed, finish, kill, same, start, train_under_fire, words
from neoteny.runs.inspect import facts_of
from patience import HANG

NINE = [(agent, replay) for agent in AGENTS for replay in REPLAYS]
FIRES = {pair: 3 if index < 2 else 2 for index, pair in enumerate(NINE)}
"""How often each is killed in CI: 20 in all."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Uninterrupted runs, each trained when first asked for."""
    folder = tmp_path_factory.mktemp("alone")

    class Runs(dict[tuple[str, str], Path]):
        def __missing__(self, pair: tuple[str, str]) -> Path:
            run = folder / "-".join(pair)
            finish(start(*words(*pair), "--out", str(run)))
            self[pair] = run
            return run

    return Runs()


@pytest.mark.slow
@pytest.mark.parametrize("pair", NINE, ids="-".join)
def test_killed_and_resumed_it_ends_the_same(
    pair: tuple[str, str], alone: dict[tuple[str, str], Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    at = train_under_fire(words(*pair), run, FIRES[pair], seed=NINE.index(pair))
    assert len(at) == FIRES[pair], "the run ended before it could be killed: give it more steps"
    check_lives(run, at)
    same(run, alone[pair])


@pytest.mark.long
@pytest.mark.parametrize("pair", NINE, ids="-".join)
def test_killed_twenty_times(pair: tuple[str, str], alone: dict[tuple[str, str], Path], tmp_path: Path) -> None:
    killed = 0
    for seed in range(20):
        run = tmp_path / str(seed)
        at = train_under_fire(words(*pair), run, 20 - killed, seed=100 + seed)
        killed += len(at)
        check_lives(run, at)
        same(run, alone[pair])
        if killed == 20:
            return
    pytest.fail(f"only {killed} kills in 20 runs")


@pytest.mark.slow
def test_a_resume_that_begins_at_0_is_found_out(tmp_path: Path) -> None:
    """The end is the same even then, so the check of the lives must see it."""
    run, first = tmp_path / "run", tmp_path / "first"
    process = start(*words("td3", "uniform"), "--out", str(run))
    while committed(run) < 0:
        time.sleep(0.001)
    shutil.copytree(run / "checkpoint", first)
    assert kill(process, run, random.Random(0), while_saving=False)
    at = [committed(run)]
    shutil.rmtree(run / "checkpoint")
    shutil.copytree(first, run / "checkpoint")
    finish(start("resume", str(run)))
    with pytest.raises(AssertionError):
        check_lives(run, at)


@pytest.mark.long
def test_ten_minutes_under_a_random_killer(tmp_path: Path) -> None:
    """Killed every 10 to 30 seconds, with a checkpoint every 3, then compared with one left alone for as many steps."""
    command = (
        "train td3 --env Hopper-v5 --learning-starts 1000 --capacity 10000 --replay swd --decay-steps 4000 "
        "--eval-every 10000 --eval-episodes 2 --checkpoint-every 3"
    ).split()
    run, whole = tmp_path / "run", tmp_path / "whole"
    rng = random.Random(0)
    process, at = start(*command, "--steps", "10000000", "--out", str(run)), []
    while committed(run) < 1:
        time.sleep(0.05)
    until = time.monotonic() + 600
    while time.monotonic() < until:
        time.sleep(rng.uniform(10, 30))
        process.kill()
        process.communicate()
        at.append(committed(run))
        process = start("resume", str(run))
    while committed(run) == at[-1]:
        time.sleep(0.05)
    process.terminate()
    process.communicate(timeout=HANG)
    check_lives(run, at)
    finish(start(*command, "--steps", str(committed(run)), "--out", str(whole)))
    a, b = (facts_of(directory)["checkpoint"] for directory in (run, whole))
    assert (a["step"], a["digests"]) == (b["step"], b["digests"])
    assert (whole / "metrics.jsonl").read_bytes().startswith((run / "metrics.jsonl").read_bytes())
    print(f"killed {len(at)} times, {committed(run):,} steps")
