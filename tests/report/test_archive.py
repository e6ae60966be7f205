"""Archives: what comes back is what was there, a report made of them is the same, and a damaged one is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import neoteny
from made_up import write_planned, write_runs
from neoteny.agents.configs import TD3Config
from neoteny.cli import main
from neoteny.commands.archive import archive
from neoteny.commands.report import about, named_runs, plan_claims
from neoteny.errors import UsageError
from neoteny.experiments.plan import load_plan, make_plan, papers_plans
from neoteny.experiments.work import carry_out, is_done
from neoteny.machine.threads import threads_in_force
from neoteny.report.archive import (
    POINTS,
    _sealed,
    _with_end,
    archived_in,
    read_archive,
    read_run,
    run_name,
    thin,
    write_archive,
)
from neoteny.report.gather import gather
from neoteny.report.scores import MEAN, made_by, read_runs
from neoteny.report.tables import tables_of
from neoteny.runs.records import read_config
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run with every kind of record."""
    config = TrainConfig(
        "Pendulum-v1",
        TD3Config((8,), batch_size=8, learning_starts=50),
        ReplayConfig("swd", decay_steps=100, capacity=500),
        PlasticityConfig(probe_every=2),
        total_timesteps=650,
        eval_every=50,
        eval_episodes=2,
        log_every=2,
    )
    return neoteny.train(config, out=tmp_path_factory.mktemp("real") / "run", quiet=True)


@pytest.mark.slow
def test_a_run_comes_back_as_it_was(real: Path, tmp_path: Path) -> None:
    ((path,), _, _) = archive([real], tmp_path)
    before, after = read_run(real, *read_config(real)), read_archive(path)
    assert after.config == before.config
    assert after.facts == before.facts
    assert after.timing == before.timing
    assert after.eval_returns == before.eval_returns
    assert after.not_finite == before.not_finite == 0
    assert len(after.eval_returns) == 13
    assert after.series.keys() == before.series.keys()
    for one, other in [
        (after.evaluations, before.evaluations),
        (after.episodes, before.episodes),
        *((after.series[name], before.series[name]) for name in before.series),
    ]:
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    assert POINTS / 2 < len(after.series["batch/critics/gradient_l1"][0]) <= POINTS
    assert path.stat().st_size < 200_000
    assert path.relative_to(tmp_path).parts[:2] == ("Pendulum-v1", "td3-swd")
    head = json.loads(path.read_text().splitlines()[0])
    assert {"config", "environment", "versions", "source", "timing", "digests", "run"} <= head.keys()
    assert {"parameters", "optimiser", "replay", "metrics"} <= head["digests"].keys()


def test_thinning_takes_means_of_neighbours_and_leaves_a_thin_series_alone() -> None:
    steps, values = np.arange(10, 2_510, 10), np.linspace(0, 1, 250)
    thinned = thin(steps, values)
    assert len(thinned[0]) <= POINTS
    assert thinned[0][-1] == steps[-1]
    np.testing.assert_allclose(thinned[1][:3], [values[:3].mean(), values[3:6].mean(), values[6:9].mean()], rtol=1e-4)
    again = thin(*thinned)
    np.testing.assert_array_equal(again[0], thinned[0])
    np.testing.assert_array_equal(again[1], thinned[1])
    assert [len(part) for part in thin(np.array([]), np.array([]))] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in papers_plans() if not name.startswith("lab/")] + ["lab/minatar"])
def test_every_verdict_and_table_is_the_same_from_archives(name: str, tmp_path: Path) -> None:
    """Over the claims of every plan: made-up runs of it, two seeds on two tasks."""
    plan = load_plan(name)
    claims = plan_claims(plan)
    measures = sorted({claim.measure for claim in claims} - {"score", MEAN})
    tasks = list(dict.fromkeys(run.config.env for run in plan.runs))[:2]
    rng = np.random.default_rng(0)
    for run in plan.runs:
        if run.config.seed <= 2 and run.config.env in tasks:
            level = rng.uniform(100, 200)
            known = {measure: rng.uniform() for measure in measures}
            known |= {f"batch/{measure}": rng.uniform() for measure in measures if measure.count("/") == 1}
            write_planned(tmp_path / "runs", run, level, known)
    written, same, unfinished = archive([tmp_path / "runs"], tmp_path / "archives")
    assert written
    assert not same
    assert not unfinished
    names = {run.directory.as_posix(): run.method for run in plan.runs}
    reports = [
        gather(read_runs([], {path: names[run_name(path)] for path in paths}), about(plan), claims)
        for paths in (sorted((tmp_path / "runs").glob("*/*/*")), written)
    ]
    assert repr(reports[0].findings) == repr(reports[1].findings)
    assert reports[0].notes == reports[1].notes
    for one, other in zip(*map(tables_of, reports), strict=True):
        assert repr(one) == repr(other)
    assert repr(reports[0].sections) == repr(reports[1].sections)


@pytest.mark.slow
def test_a_page_made_from_archives_is_the_same_bytes(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs")
    archive([tmp_path / "runs"], tmp_path / "archives")
    for source in ("runs", "archives"):
        assert main(["report", str(tmp_path / source), "--out", str(tmp_path / f"{source}-page")]) == 0
    one, other = (contents(tmp_path / f"{source}-page") for source in ("runs", "archives"))
    one["index.html"] = one["index.html"].replace(b"Runs in runs", b"Runs in archives")
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []
    table = neoteny.load_runs(tmp_path / "archives")
    assert table.equals(neoteny.load_runs(tmp_path / "runs"))
    both = neoteny.load_runs(tmp_path / "runs", tmp_path / "archives")
    assert both.equals(table), "a run that is there with its archive is read once"


def test_what_is_not_finished_or_different_is_not_archived(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path / "runs", seeds=1)
    first, second, *_ = sorted((tmp_path / "runs").glob("*/*/*"))
    (second / "DONE").unlink()
    words = ["archive", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert f"left out  {second}: it is not finished" in shown
    assert "3 archived" in shown
    assert main(words) == 0
    assert "0 archived" in capsys.readouterr().out
    (first / "metrics.jsonl").write_text((first / "metrics.jsonl").read_text().replace("0.1", "0.2"))
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "is the archive of another result of the same run" in said
    assert "they differ in metrics" in said
    assert main(["archive", str(tmp_path / "nowhere"), "--out", str(tmp_path / "results")]) == 2
    assert "there are no runs in" in capsys.readouterr().err


def edited(lines: list[str]) -> list[str]:
    return [lines[0], lines[1].replace("1", "2", 1), *lines[2:]]


OTHERS = _sealed({"evaluations": [1], "returns": [1.0], "not_finite": 0, "episodes": [[1.0]]})
DAMAGES = {
    "a number edited": (edited, 2),
    "a line cut": (lambda lines: [*lines[:3], lines[3][:20], *lines[4:]], 4),
    "not JSON": (lambda lines: ["hello", *lines[1:]], 1),
    "JSON of another kind": (lambda lines: [*lines[:2], "[1, 2]", *lines[3:]], 3),
    "a line removed": (lambda lines: [*lines[:3], *lines[4:]], -1),
    "two lines exchanged": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], -1),
    "a line of another run": (lambda lines: [lines[0], OTHERS, *lines[2:]], -1),
    "not text": (lambda lines: [lines[0], "\udcff" + lines[1], *lines[2:]], 2),
    "cut short": (lambda lines: lines[:-2], None),
    "empty": (lambda lines: [], 1),
}
"""What is done to the lines, and the line that is wrong: None the first that is missing, -1 the last."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_archive_is_refused_with_the_line_that_is_wrong(damage: str, tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", seeds=1)
    path = archive([tmp_path / "runs"], tmp_path / "results")[0][0]
    change, number = DAMAGES[damage]
    lines = path.read_text().splitlines()
    broken = change(lines)
    path.write_bytes("".join(f"{line}\n" for line in broken).encode(errors="surrogateescape"))
    where = {None: len(broken) + 1, -1: len(broken)}.get(number, number)
    for read in (read_archive, lambda _: archived_in(tmp_path / "results")):  # a sweep must not count it as done
        with pytest.raises(UsageError, match=rf"{path.name}, line {where}\b"):
            read(path)


def test_an_archive_of_another_format_is_refused(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", seeds=1)
    path = archive([tmp_path / "runs"], tmp_path / "results")[0][0]
    first, *rest, _ = path.read_text().splitlines()
    head = {name: value for name, value in json.loads(first).items() if name != "checksum"}
    path.write_text("\n".join(_with_end([_sealed({**head, "neoteny archive": 99}), *rest])) + "\n")
    with pytest.raises(UsageError, match=r"line 1: this is format 99, and this version reads 1"):
        read_archive(path)


def test_a_report_that_mixes_versions_says_so(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", seeds=2)
    for index, path in enumerate(sorted((tmp_path / "runs").glob("*/*/*"))):
        facts = json.loads((path / "config.json").read_text())
        facts["source"] = {"commit": ("a" if index % 2 else "b") * 40, "changed": bool(index % 2), "processor": "x"}
        (path / "config.json").write_text(json.dumps(facts))
    archive([tmp_path / "runs"], tmp_path / "results")
    shutil.rmtree(tmp_path / "runs")
    notes = gather(read_runs([tmp_path / "results"]), about(load_plan("swd/fig2"))).notes
    assert f"These runs were made by 2 versions of neoteny: {'a' * 12} with changes, {'b' * 12}." in notes


def test_an_archive_belongs_to_the_run_it_is_named_for(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", seeds=1)
    path = archive([tmp_path / "runs"], tmp_path / "results")[0][0]
    other = path.with_name("9-00000000.jsonl")
    shutil.copy(path, other)
    with pytest.raises(UsageError, match=r"line 1: this is the archive of .*: give the file that name again"):
        read_archive(other)
    again = tmp_path / "results" / "again" / path.relative_to(tmp_path / "results")
    again.parent.mkdir(parents=True)
    shutil.copy(path, again)
    other.unlink()
    assert len(archived_in(tmp_path / "results")) == 4
    write_archive(again, run_name(path), read_archive(path), {"metrics": "another"})
    with pytest.raises(UsageError, match="are different archives of the same run: keep one of them"):
        archived_in(tmp_path / "results")


@pytest.mark.slow
def test_a_run_that_was_made_longer_is_another_run(tmp_path: Path) -> None:
    """It counts neither as the shorter one that was planned, nor as one planned at its new length."""
    plan = {
        "title": "t",
        "agent": "td3",
        "environments": ["Pendulum-v1"],
        "seeds": [1],
        "settings": {
            "widths": [8],
            "batch_size": 8,
            "learning_starts": 50,
            "probe_every": 0,
            "eval_every": 50,
            "threads": threads_in_force(),
        },
        "methods": {"uniform": {}},
    }
    short, long = (make_plan("p", {**plan, "steps": steps}) for steps in (100, 200))
    (run,) = short.runs
    directory = neoteny.train(run.config, out=tmp_path / "runs" / run.directory, quiet=True)
    assert is_done(directory, run.config)
    assert list(named_runs(short, [tmp_path / "runs"])) == [directory.resolve()]
    neoteny.resume(directory, steps=200, quiet=True)
    assert not is_done(directory, run.config)
    assert named_runs(short, [tmp_path / "runs"]) == {}
    archive([tmp_path / "runs"], tmp_path / "results")
    assert [named_runs(one, [tmp_path / "results"]) for one in (short, long)] == [{}, {}]
    with pytest.raises(UsageError, match=r"is not the plan's run [(]steps 200 instead of 100[)]: move it away"):
        carry_out(run.config, directory)


def test_a_run_that_another_version_resumed_says_so() -> None:
    first = {"commit": "a" * 40, "changed": False}
    facts = {"source": first, "resumed_by": [{"commit": "b" * 40, "changed": True}], "versions": {"neoteny": "1"}}
    assert made_by(facts) == f"{'a' * 12} then {'b' * 12} with changes"
    assert made_by({"versions": {"neoteny": "1"}}) == "1"
