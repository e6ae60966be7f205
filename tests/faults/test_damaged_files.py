"""Damage outside the checkpoint: the right result, or one sentence that names the file; never another result."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import damaging
import neoteny
from damaged_runs import edit, said_of, train_small
from killing import same
from made_up import write_planned, write_run
from neoteny.errors import UsageError
from neoteny.experiments.plan import load_plan
from neoteny.experiments.watch import last_evaluation, steps_done
from neoteny.report.archive import read_history
from neoteny.runs.records import (
    read_config,
    read_metrics,
    read_timing,
    write_config,
    write_done,
)

FILES = ("config.json", "metrics.jsonl", "timing.jsonl", "DONE")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of 300 steps with two evaluations, and the same resumed to 400."""
    folder = tmp_path_factory.mktemp("trained")
    run = train_small(folder / "run")
    longer = Path(shutil.copytree(run, folder / "longer"))
    neoteny.resume(longer, steps=400, quiet=True)
    return run, longer


@pytest.fixture
def run(trained: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained[0], tmp_path / "run"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that never ran, as `neoteny train` would leave it."""
    directory = write_run(tmp_path_factory.mktemp("finished"), "Hopper-v5", "swd", 1, 2_000.0)
    write_config(directory, read_config(directory)[1])
    write_done(directory)
    return directory


@pytest.fixture
def finished_copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "Hopper-v5" / "td3-swd" / finished.name))


# config.json


def test_a_horizon_that_was_edited_is_noticed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run / "config.json", '"horizon": 300', '"horizon": 30000')
    for words in (("resume", str(run), "--steps", "400"), ("evaluate", str(run)), ("inspect", str(run))):
        assert f"{run}/config.json was changed after it was written" in said_of(capsys, *words)[2]


@pytest.mark.parametrize("before", ['"log_every": 50', '"checkpoint_every": 600', '"seed": 1', '"wandb": false'])
def test_any_setting_that_was_edited_is_noticed(before: str, run: Path) -> None:
    """Also one that is no part of the run's id, nor compared with the checkpoint."""
    edit(run / "config.json", before, before.replace("false", "true").replace("0", "5").replace(" 1", " 2"))
    with pytest.raises(UsageError, match=r"config\.json was changed"):
        read_config(run)


def test_resume_seals_what_it_changes(run: Path, trained: tuple[Path, Path]) -> None:
    neoteny.resume(run, steps=320, on_nan="skip", quiet=True)
    config, facts = read_config(run)
    assert (config.total_timesteps, config.on_nan, facts["environment"]["horizon"]) == (320, "skip", 300)
    assert "sha256" in json.loads((run / "config.json").read_text())


def test_a_run_from_before_there_were_checksums(run: Path, trained: tuple[Path, Path]) -> None:
    _, facts = read_config(run)
    (run / "config.json").write_text(json.dumps(facts))
    (run / "DONE").write_bytes(b"")
    assert read_config(run)[1] == facts
    assert len(read_metrics(run)) == len(read_metrics(trained[0]))
    neoteny.resume(run, steps=400, quiet=True)
    same(run, trained[1])
    assert json.loads((run / "config.json").read_text())["sha256"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("config", [], "config must be a table, got []"),
        ("config.agent_name", "ppo", "agent_name must be one of td3, sac, ddqn, got 'ppo'"),
        ("config.agent", 3, "agent must be a table, got 3"),
        ("config.agent.tau", "much", "agent.tau must be a finite number, got 'much'"),
        ("config.agent.widths", 16, "agent.widths must be a list of whole numbers, got 16"),
        ("config.env", None, "env must be a string, got None"),
        ("config.total_timesteps", -1, "--steps must be >= 1, got -1"),
        ("config.total_timesteps", float("nan"), "total_timesteps must be a whole number, got nan"),
        ("config.colour", "red", "there is no setting colour"),
        ("environment", "Pendulum", "environment must be a table, got 'Pendulum'"),
        ("environment.horizon", 0, "horizon must be >= 1, got 0"),
        ("environment.versions", {"mujoco": 3}, "environment.versions must be a table"),
        ("resumed_by", [None], "resumed_by must be a list"),
        ("source.commit", 5, "source.commit must be a string"),
    ],
)
def test_values_that_cannot_be(key: str, value: Any, message: str, run: Path) -> None:
    """Of a run from before there was a checksum, which would show each of them."""
    _, facts = read_config(run)
    inner: Any = facts
    *way, last = key.split(".")
    for name in way:
        inner = inner[name]
    inner[last] = value
    (run / "config.json").write_text(json.dumps(facts))
    with pytest.raises(UsageError) as raised:
        neoteny.resume(run, steps=400, quiet=True)
    assert str(raised.value).startswith(f"{run}/config.json is damaged: ")
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["horizon", "network", "make_env", "versions", "backend"])
def test_what_resume_needs_to_know(name: str, run: Path) -> None:
    _, facts = read_config(run)
    del facts["environment"][name]
    (run / "DONE").unlink()
    write_config(run, facts)
    with pytest.raises(UsageError, match=f"config.json is damaged: it has no environment.{name}"):
        neoteny.resume(run, steps=400, quiet=True)


def test_the_config_of_another_run_is_noticed(finished_copy: Path) -> None:
    _, facts = read_config(finished_copy)
    facts["config"]["seed"] = 2
    write_config(finished_copy, facts)
    with pytest.raises(UsageError, match=r"config\.json is not the one that the run finished with"):
        read_config(finished_copy)
    (finished_copy / "DONE").unlink()
    assert read_config(finished_copy)[0].seed == 2


def test_only_the_end_of_a_run_is_archived(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = max((run / "checkpoint").glob("*.json"))
    state = next((run / "checkpoint").glob(f"{manifest.stem}-*.npz"))
    whole = state.read_bytes()
    state.write_bytes(whole[:-100])
    archive = ("archive", str(run), "--out", str(run / "results"))
    assert "cannot be archived: the checkpoint at step 300 cannot be used" in said_of(capsys, *archive)[2]
    state.write_bytes(whole)
    manifest.rename(run / "elsewhere.json")
    assert "cannot be archived: its last checkpoint is of step 0" in said_of(capsys, *archive)[2]
    assert not (run / "results").exists()


# metrics.jsonl


def test_a_last_line_that_a_crash_cut_short_is_left_out(finished_copy: Path) -> None:
    whole = read_metrics(finished_copy)
    (finished_copy / "DONE").unlink()
    for torn in (b'{"step": 20000, "eval_ret', b'{"step": 20000, "eval_return": 1', b"\x00\x00\x00", b"\xff"):
        with (finished_copy / "metrics.jsonl").open("ab") as file:
            file.write(torn)
        assert read_metrics(finished_copy) == whole
        (finished_copy / "metrics.jsonl").write_bytes((finished_copy / "metrics.jsonl").read_bytes()[: -len(torn)])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"step": 2000, "eval_return": 1', "Expecting"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b"", "Expecting value"),
        (b"[1]", "it is not a JSON object"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"eval_return": 3.0}', "its step must be a whole number, got null"),
        (b'{"step": -1}', "its step must be a whole number, got -1"),
        (b'{"step": 9999999999999999999}', "the number 9999999999999999999... is too large"),
        (b'{"step": 10}', "its step is 10, after 1,000"),
        (b'{"step": 2000, "eval_return": NaN}', "eval_return is NaN"),
        (b'{"step": 2000, "eval_return": "high"}', 'eval_return is "high"'),
        (b'{"step": 2000, "eval_return": 1' + b"0" * 400 + b"}", "the number 10000000000000000000... is too large"),
        (b'{"step": 2000, "eval_returns": 3}', "eval_returns is 3"),
        (b'{"step": 2000, "remedy": 3}', "remedy is 3"),
    ],
)
def test_any_other_line_that_is_damaged_is_named(line: bytes, message: str, finished_copy: Path, capsys: Any) -> None:
    (finished_copy / "DONE").write_bytes(b"")
    lines = (finished_copy / "metrics.jsonl").read_bytes().splitlines()
    (finished_copy / "metrics.jsonl").write_bytes(b"\n".join([*lines[:3], line, *lines[3:]]) + b"\n")
    for words in (
        ("inspect", str(finished_copy)),
        ("diagnose", str(finished_copy)),
        ("report", str(finished_copy.parent)),
    ):
        said = said_of(capsys, *words)[2]
        assert f"{finished_copy}/metrics.jsonl, line 4 is damaged: " in said
        assert message in said


def test_a_return_that_was_edited_is_noticed(finished_copy: Path, capsys: Any) -> None:
    edit(finished_copy / "metrics.jsonl", '"eval_return": ', '"eval_return": 9')
    for words in (
        ("inspect", str(finished_copy)),
        ("report", str(finished_copy.parent)),
        ("archive", str(finished_copy.parent), "--out", str(finished_copy.parent / "results")),
    ):
        said = said_of(capsys, *words)[2]
        assert f"{finished_copy}/metrics.jsonl was changed after the run finished" in said
    assert not (finished_copy.parent / "results").exists()
    with pytest.raises(UsageError, match="changed after the run finished"):
        neoteny.load_runs(finished_copy)


def test_resume_does_not_go_on_with_returns_that_were_edited(
    run: Path, trained: tuple[Path, Path], capsys: Any
) -> None:
    edit(run / "metrics.jsonl", '"eval_return": -', '"eval_return": -9')
    neoteny.resume(run, steps=400, quiet=True)
    assert "step 300 cannot be used: metrics.jsonl was changed after it was written" in capsys.readouterr().err
    same(run, trained[1])  # from the checkpoint before, with the returns as they were


def test_resume_says_which_log_no_checkpoint_fits(trained: tuple[Path, Path], run: Path) -> None:
    shutil.rmtree(run)
    shutil.copytree(trained[1], run)  # whose two checkpoints were both made after the first evaluation
    edit(run / "metrics.jsonl", '"eval_return": -', '"eval_return": -9')
    with pytest.raises(UsageError, match=r"cannot go on: .*metrics.jsonl was changed after it was written"):
        neoteny.resume(run, steps=500, quiet=True)


def test_what_was_logged_after_the_checkpoint_may_be_damaged(run: Path, trained: tuple[Path, Path]) -> None:
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\n{"step"\n\x00\x00')
    neoteny.resume(run, steps=400, quiet=True)
    same(run, trained[1])


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl"])
def test_a_run_that_lost_a_file_is_not_left_out_in_silence(name: str, finished_copy: Path, capsys: Any) -> None:
    (finished_copy / name).unlink()
    for words in (
        ("report", str(finished_copy.parent)),
        ("archive", str(finished_copy.parent), "--out", str(finished_copy.parent / "results")),
    ):
        assert name in said_of(capsys, *words)[2]


# timing.jsonl


@pytest.mark.parametrize("line", [b"\xff", b'{"step": 1}', b"[]", b'{"life": "x", "step": null}', b'{"step": 5, "sec'])
def test_timing_never_blocks_a_resume(line: bytes, run: Path, trained: tuple[Path, Path]) -> None:
    lines = (run / "timing.jsonl").read_bytes().splitlines()
    (run / "timing.jsonl").write_bytes(b"\n".join([lines[0], line, *lines[1:], b"\xfe"]))
    neoteny.resume(run, steps=400, quiet=True)
    same(run, trained[1])
    assert read_history(run).timing["seconds"] is not None


def test_times_that_were_changed_are_not_reported(finished_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_history(finished_copy).timing == {"seconds": 5_400.0, "steps_per_second": 60.0, "peak_resident_mb": 700}
    edit(finished_copy / "timing.jsonl", "1800.0", "9800.0")
    assert read_timing(finished_copy) == []
    assert set(read_history(finished_copy).timing.values()) == {None}
    for words in (
        ("archive", str(finished_copy), "--out", str(finished_copy / "results")),
        ("report", str(finished_copy), "--out", str(finished_copy / "r")),
    ):
        assert "changed after the run finished" in said_of(capsys, *words)[1]
    (finished_copy / "DONE").unlink()  # then nothing tells that it was changed, and lines that cannot be are ignored
    edit(finished_copy / "timing.jsonl", "9800.0", '"many"')
    assert read_history(finished_copy).timing["seconds"] == 3_600.0
    (finished_copy / "timing.jsonl").unlink()
    (finished_copy / "timing.jsonl").mkdir()
    assert read_timing(finished_copy) == []


def test_a_directory_in_place_of_timing_stops_a_resume_in_one_sentence(run: Path) -> None:
    (run / "timing.jsonl").unlink()
    (run / "timing.jsonl").mkdir()
    with pytest.raises(UsageError, match=r"timing\.jsonl is a folder, and in a run it is a file"):
        neoteny.resume(run, steps=400, quiet=True)
    assert (run / "DONE").exists()


# A folder of runs that a plan names


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first of the runs of a plan of the paper, all of which are finished."""
    monkeypatch.setattr("neoteny.commands.claims.papers_plans", lambda: ["swd/fig2"])
    plan = load_plan("swd/fig2", "laptop")
    for run in plan.runs:
        directory = write_planned(tmp_path / "runs", run, 100.0)
        write_config(directory, read_config(directory)[1])
        write_done(directory)
    return tmp_path / "runs" / plan.runs[0].directory


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "config.json is damaged: "),
        ("metrics.jsonl", "metrics.jsonl was changed after the run finished"),
    ],
)
def test_commands_that_read_a_plans_folder(name: str, message: str, planned: Path, tmp_path: Path, capsys: Any) -> None:
    none, runs = str(tmp_path / "none"), str(tmp_path / "runs")
    assert said_of(capsys, "claims", "--out", runs, "--archives", none)[0] == 0
    (planned / name).write_bytes((planned / name).read_bytes()[:-40] + b"\xff")
    commands = [
        ("claims", "--out", runs, "--archives", none),
        ("report", runs, "--plan", "swd/fig2", "--scale", "laptop", "--out", str(tmp_path / "report")),
    ]
    if name == "config.json":  # all that a sweep must know of a run that is done
        commands.append(("sweep", "swd/fig2", "--scale", "laptop", "--out", runs, "--archives", none))
    for words in commands:
        status, _, said = said_of(capsys, *words)
        assert status == 2
        assert f"{planned}/{message}" in said


def test_a_sweep_watches_runs_whose_logs_are_damaged(finished_copy: Path) -> None:
    last = read_metrics(finished_copy)[-1]["eval_return"]
    for name in ("timing.jsonl", "metrics.jsonl"):
        with (finished_copy / name).open("ab") as file:
            file.write(b'3\n{"step": "x"}\n{"eval_return": 5, "step": null}\n{"step": 20000, "eval_return": "x"}\n\xff')
    assert steps_done(finished_copy) == 20_000
    assert last_evaluation(finished_copy) == last
    (finished_copy / "metrics.jsonl").unlink()
    (finished_copy / "metrics.jsonl").mkdir()
    assert last_evaluation(finished_copy) is None


# Everything, at random


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures would take most of the time."""
    monkeypatch.setattr("neoteny.measuring.diagnose.draw", lambda *_: None)


def outcomes(run: Path, capsys: Any) -> list[tuple[Any, ...]]:
    """What each quick command makes of a run: its result, or that it refused in one sentence."""
    results = run.parent / "results"
    shutil.rmtree(results, ignore_errors=True)
    commands = (
        ["inspect", str(run)],
        ["diagnose", str(run), "--picture", str(run.parent / "p.png")],
        ["archive", str(run), "--out", str(results)],
    )
    answers: list[tuple[Any, ...]] = [said_of(capsys, *words)[:2] for words in commands]
    try:
        return [*answers, (0, neoteny.load_runs(run).to_csv())]
    except UsageError:
        return [*answers, (2, "")]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", FILES)
def test_mutations_change_no_result_in_silence(name: str, finished_copy: Path, finished: Path, capsys: Any) -> None:
    """Of a finished run, whose checksums are there: what is not refused is right."""
    right = outcomes(finished_copy, capsys)
    for number, mutation in enumerate(damaging.TEXT):
        shutil.rmtree(finished_copy)
        shutil.copytree(finished, finished_copy)
        try:
            mutation(finished_copy / name, random.Random(f"{name} {number}"))
        except IndexError:  # there is no number in DONE, nor a key that can be renamed
            continue
        for got, expected in zip(outcomes(finished_copy, capsys), right, strict=True):
            changed = got != expected and got[0] == 0
            unfinished = name == "DONE" and not (finished_copy / name).exists()  # which the commands then say
            archived = name == "timing.jsonl" and "archived" in got[1]  # with no times, so a shorter file
            assert not changed or unfinished or archived, (mutation.__name__, got)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", FILES)
def test_mutations_of_runs_without_checksums(name: str, finished_copy: Path, tmp_path: Path, capsys: Any) -> None:
    """Nothing tells whether a number is the right one; but it is one, or there is a sentence."""
    _, facts = read_config(finished_copy)
    (finished_copy / "config.json").write_text(json.dumps(facts, indent=2))
    (finished_copy / "DONE").write_bytes(b"")
    whole = Path(shutil.copytree(finished_copy, tmp_path / "whole"))
    for number, mutation in enumerate(damaging.TEXT if name != "DONE" else (damaging.delete, damaging.directory)):
        shutil.rmtree(finished_copy)
        shutil.copytree(whole, finished_copy)
        mutation(finished_copy / name, random.Random(f"old {name} {number}"))
        outcomes(finished_copy, capsys)
