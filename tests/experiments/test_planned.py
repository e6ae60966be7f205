"""A run in a plan's folder that was made longer, or changed, is another run: named, left out, and never lost."""

from __future__ import annotations

import html
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from made_up import write_planned
from neoteny.cli import main
from neoteny.experiments.plan import PlannedRun, load_plan, papers_plans, scales_of
from neoteny.experiments.planned import differing
from neoteny.report.about import About
from neoteny.report.gather import gather
from neoteny.report.scores import read_runs
from neoteny.training.config import TrainConfig
from neoteny.training.identity import canonical
from neoteny.training.lock import lock

PLAN = """
title = "Two replays"
agent = "td3"
environments = ["Pendulum-v1"]
steps = 600
seeds = [1, 2]

[settings]
learning_starts = 200
widths = [16]
batch_size = 16
capacity = 1_000
eval_every = 200
eval_episodes = 1
probe_every = 0

[methods]
uniform = { replay = "uniform" }
swd = { replay = "swd", decay_steps = 500 }
"""


@pytest.fixture
def plan(tmp_path: Path) -> str:
    (tmp_path / "mine.toml").write_text(PLAN)
    return str(tmp_path / "mine.toml")


def write(out: Path, run: PlannedRun, level: float, **changed: Any) -> Path:
    """A finished run where the plan has its own, with some settings that are not the plan's."""
    path = write_planned(out, run, level)
    facts = json.loads((path / "config.json").read_text())
    for name, value in changed.items():
        part = next((facts["config"][p] for p in ("agent", "replay") if name in facts["config"][p]), facts["config"])
        part[name] = value
    facts["environment"]["horizon"] = run.config.total_timesteps
    (path / "config.json").write_text(json.dumps(facts))
    return path


CHANGES = [
    ({"total_timesteps": 5_000}, "steps 5,000 instead of 600"),
    ({"total_timesteps": 300}, "steps 300 instead of 600"),
    ({"gamma": 0.5}, "gamma 0.5 instead of 0.99"),
    ({"widths": [32, 32]}, "widths 32-32 instead of 16"),
    ({"on_nan": "skip"}, "on nan skip instead of halt"),
    ({"seed": 7}, "seed 7 instead of 1"),
    ({"n_step": 3, "total_timesteps": 601}, "steps 601 instead of 600, n step 3 instead of 1"),
]


@pytest.mark.parametrize(("changed", "words"), CHANGES)
def test_a_sweep_refuses_where_another_run_is_in_a_plans_place(
    changed: dict[str, Any], words: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my runs"
    other = write(out, load_plan(plan).runs[0], 900.0, **changed)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for words_of_command in (["sweep"], ["sweep", "--dry-run"], ["reproduce"]):
        assert main([*words_of_command, plan, "--out", str(out)]) == 2
        said = capsys.readouterr()
        assert "4 runs, 0 of them done" in said.out
        assert said.err.startswith(f"neoteny {words_of_command[0]}: {other} is not the plan's run ({words}): move it")
        assert f"with mv {shlex.quote(str(other))} " in said.err
        assert said.err.count("\n") == 1
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != "lock"} == before


def test_a_report_names_it_and_leaves_it_out(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, runs = tmp_path / "runs", load_plan(plan).runs
    other = write(out, runs[0], 900.0, total_timesteps=5_000)
    for run in runs[1:]:
        write(out, run, 100.0)
    assert main(["report", str(out), "--plan", plan, "--out", str(tmp_path / "report")]) == 0
    said = capsys.readouterr().out
    assert f"Left out: {other}, which is not the plan's run (steps 5,000 instead of 600)." in said
    assert "Only 3 of the 4 planned runs are done" in said
    page = html.unescape((tmp_path / "report" / "index.html").read_text())
    assert f"Left out: {other}, which is not the plan's run (steps 5,000 instead of 600)." in page


def test_claims_name_it_and_leave_it_out(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, runs = tmp_path / "runs", load_plan(plan).runs
    other = write(out, runs[0], 900.0, gamma=0.5)
    for run in runs[1:]:
        write(out, run, 100.0)
    for module in ("claims", "plan"):
        monkeypatch.setattr(f"neoteny.experiments.{module}.papers_plans", lambda: {"ours/mine": Path(plan)})
    assert main(["claims", "--out", str(out), "--archives", str(tmp_path / "none")]) == 0
    said = capsys.readouterr().out
    assert f"Left out: {other}, which is not the plan's run (gamma 0.5 instead of 0.99)." in said
    assert "runs done: 3 of 4 at full scale" in said
    (shown,) = [line for line in said.splitlines() if "swd against uniform" in line]
    assert "2 and 1 runs" in shown


def test_what_changes_no_result_is_still_the_plans(plan: str, tmp_path: Path) -> None:
    (run, *_) = load_plan(plan).runs
    path = write(tmp_path, run, 100.0, log_every=7, checkpoint_every=3, keep_checkpoints=4, device="cpu")
    assert differing(path, run.config) == ""
    assert differing(tmp_path / "nowhere", run.config) == ""


def test_every_run_of_our_plans_is_itself_when_it_is_read_back() -> None:
    for name in papers_plans():
        for scale in scales_of(name):
            for run in load_plan(name, scale).runs:
                again = TrainConfig.from_json(json.loads(json.dumps(run.config.to_json())))
                assert canonical(again) == canonical(run.config)


def test_nobody_is_told_to_move_a_run_that_is_at_work(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path, load_plan(plan).runs[0], 900.0, total_timesteps=5_000)
    held = lock(other)
    assert main(["sweep", plan, "--out", str(tmp_path)]) == 2
    held.close()
    assert "and another process is at work on it: wait for it" in capsys.readouterr().err


def test_a_report_of_nothing_but_others_says_so(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write(tmp_path, load_plan(plan).runs[0], 900.0, total_timesteps=5_000)
    assert main(["report", str(tmp_path), "--plan", plan, "--out", str(tmp_path / "report")]) == 2
    said = capsys.readouterr().err
    assert "none of the 4 runs of mine at full scale is in" in said
    assert f"Left out: {other}, which is not the plan's run (steps 5,000 instead of 600)" in said
    assert not (tmp_path / "report").exists()


def test_without_a_plan_runs_of_different_lengths_are_told(plan: str, tmp_path: Path) -> None:
    """Of one method with different seeds, which are one method to the report."""
    runs = load_plan(plan).runs
    for index, run in enumerate(runs):
        write(tmp_path / "one", run, 100.0)
        write(tmp_path / "two", run, 100.0, **({"total_timesteps": 5_000} if index == 1 else {}))
    one, two = (gather(read_runs([tmp_path / name]), About("Runs")).notes for name in ("one", "two"))
    assert not any("different lengths" in note for note in one)
    (note,) = (note for note in two if "different lengths" in note)
    assert note == (
        "Runs of different lengths are compared on Pendulum-v1: td3-swd with 600 steps, td3-uniform with 600 steps, "
        "td3-swd with 5,000 steps. The longer ones learned for longer."
    )


@pytest.mark.slow
def test_a_run_that_was_resumed_to_more_steps(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the issue tells it: the sweep refuses, its own advice is followed, and both runs are there in the end."""
    text = PLAN.replace("seeds = [1, 2]", "seeds = [1]")
    Path(plan).write_text(text)
    out, runs = tmp_path / "my runs", load_plan(plan).runs
    assert main(["sweep", plan, "--out", str(out)]) == 0
    made = out / runs[0].directory
    metrics = (made / "metrics.jsonl").read_bytes()
    resume = [sys.executable, "-m", "neoteny", "resume", str(made), "--steps", "900"]
    subprocess.run(resume, check=True, capture_output=True)
    longer = (made / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert main(["sweep", plan, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert f"{made} is not the plan's run (steps 900 instead of 600)" in said
    move = said[said.index("mv ") : said.index(", and the same command")]
    assert main(["report", str(out), "--plan", plan, "--out", str(tmp_path / "report")]) == 0
    assert f"Left out: {made}, which is not the plan's run (steps 900 instead of 600)." in capsys.readouterr().out
    subprocess.run(shlex.split(move), check=True)
    assert main(["sweep", plan, "--out", str(out)]) == 0
    assert "Done in" in capsys.readouterr().out
    assert (made / "metrics.jsonl").read_bytes() == metrics
    aside = Path(shlex.split(move)[-1])
    assert (aside / "metrics.jsonl").read_bytes() == longer
    assert main(["report", str(out), "--out", str(tmp_path / "all")]) == 0
    assert "Runs of different lengths are compared on Pendulum-v1" in capsys.readouterr().out
