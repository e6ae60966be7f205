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
from neoteny.errors import UsageError
from neoteny.experiments.archiving import archive
from neoteny.experiments.plan import load_plan, papers_plans
from neoteny.experiments.reporting import about, plan_claims
from neoteny.report.archive import POINTS, read_archive, read_run, run_name, thin
from neoteny.report.gather import gather
from neoteny.report.scores import read_runs
from neoteny.report.tables import tables_of
from neoteny.training.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training.run import read_config


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
    assert len(after.eval_returns) == 13
    assert after.series.keys() == before.series.keys()
    for one, other in [
        (after.evaluations, before.evaluations),
        (after.episodes, before.episodes),
        *((after.series[name], before.series[name]) for name in before.series),
    ]:
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    assert len(after.series["batch/critics/gradient_l1"][0]) == POINTS
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
@pytest.mark.parametrize("name", list(papers_plans()))
def test_every_verdict_and_table_is_the_same_from_archives(name: str, tmp_path: Path) -> None:
    """Over the claims of every plan: made-up runs of it, two seeds on two tasks."""
    plan = load_plan(name)
    claims = plan_claims(plan)
    measures = sorted({claim.measure for claim in claims} - {"score"})
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


DAMAGES = {
    "a number edited": (edited, 2),
    "a line cut": (lambda lines: [*lines[:3], lines[3][:20], *lines[4:]], 4),
    "not JSON": (lambda lines: ["hello", *lines[1:]], 1),
    "JSON of another kind": (lambda lines: [*lines[:2], "[1, 2]", *lines[3:]], 3),
    "a line removed": (lambda lines: [*lines[:3], *lines[4:]], None),
    "cut short": (lambda lines: lines[:-2], None),
    "empty": (lambda lines: [], 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_archive_is_refused_with_the_line_that_is_wrong(damage: str, tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", seeds=1)
    path = archive([tmp_path / "runs"], tmp_path / "results")[0][0]
    change, number = DAMAGES[damage]
    lines = path.read_text().splitlines()
    broken = change(lines)
    path.write_text("".join(f"{line}\n" for line in broken))
    where = len(broken) + 1 if number is None else number
    with pytest.raises(UsageError, match=rf"{path.name}, line {where}\b"):
        read_archive(path)


def test_an_archive_of_another_format_is_refused(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", seeds=1)
    path = archive([tmp_path / "runs"], tmp_path / "results")[0][0]
    from neoteny.report.archive import _sealed

    first, *rest = path.read_text().splitlines()
    head = {name: value for name, value in json.loads(first).items() if name != "checksum"}
    path.write_text("\n".join([_sealed({**head, "neoteny archive": 99}), *rest]) + "\n")
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
