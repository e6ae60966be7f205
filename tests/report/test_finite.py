"""Runs without a finite score: left out of every number, named, and no verdict on what they belong to."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from made_up import write_planned, write_run, write_runs
from neoteny.cli import main
from neoteny.commands.archive import archive
from neoteny.commands.claims import page
from neoteny.errors import UsageError
from neoteny.experiments.plan import load_plan
from neoteny.report.about import About
from neoteny.report.archive import History
from neoteny.report.gather import default_claims, findings_of
from neoteny.report.permutation import permutation_test
from neoteny.report.scores import LARGEST, Record, _evaluations, left_out, read_runs, scores_of
from neoteny.report.shapes import curve
from neoteny.report.verdict import Claim, Finding, judge
from neoteny.settings.config import TrainConfig

BAD = ["nan", "inf", "-inf", "1e308", "-1e308", "1e101"]


def write_csv(path: Path, bad: str, method: str = "ours", step: int = 20) -> Path:
    """6 seeds each, of which `ours` is far better, and seed 3 of `method` returned `bad` at `step`."""
    lines = [
        f"{name},Hop,{seed},{at},{bad if (name, seed, at) == (method, 3, step) else level + seed + at}"
        for name, level in (("ours", 200), ("uniform", 100))
        for seed in range(1, 7)
        for at in (5, 10, 15, 20)
    ]
    path.write_text("\n".join(["method,task,seed,step,return", *lines]) + "\n")
    return path


def judged(records: list[Record]) -> tuple[Finding, ...]:
    """Every method against uniform replay."""
    return findings_of(records, default_claims(list(dict.fromkeys(record.method for record in records))), About())


@pytest.mark.parametrize("method", ["ours", "uniform"])
@pytest.mark.parametrize("bad", BAD)
def test_a_run_without_a_finite_score_is_left_out_and_named_and_there_is_no_verdict(
    bad: str, method: str, tmp_path: Path
) -> None:
    records = read_runs([write_csv(tmp_path / "runs.csv", bad, method)])
    (finding,) = judged(records)
    assert finding.outcome == "no verdict"
    assert finding.left_out == (f"{method} on Hop with seed 3",)
    assert finding.runs == ((5, 6) if method == "ours" else (6, 5))
    assert finding.test is not None
    assert finding.test.gain > 0.5  # as it is without that run
    assert 0 < finding.test.p < 0.05
    assert [record.seed for record in left_out(records)] == [3]
    assert all(np.isfinite(values).all() for tasks in scores_of(records).values() for values in tasks.values())


def test_it_is_said_in_the_terminal_on_the_page_and_in_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(write_csv(tmp_path / "runs.csv", "nan")), "--out", str(tmp_path / "out")]) == 0
    named = "1 run has no finite score and is left out: ours on Hop with seed 3."
    why = "A run that diverged counts against its method, and no number says by how much."
    said = capsys.readouterr().out
    assert said.startswith("No verdict: ours against uniform. +")
    assert "5 and 6 runs, on 1 task, 5 to 6 seeds on each; 1 run without a finite value left out." in said
    assert f"{named} {why}" in said
    html = (tmp_path / "out" / "index.html").read_text()
    assert f"{named} {why}" in html
    assert html.count(named) == 2  # with the comparison, and among what must be known of these runs
    tables = {}
    for name in ("verdicts", "scores", "runs"):
        with (tmp_path / "out" / "tables" / f"{name}.csv").open() as file:
            tables[name] = list(csv.DictReader(file))
    assert [(row["verdict"], row["runs"], row["left out"]) for row in tables["verdicts"]] == [("no verdict", "11", "1")]
    assert {row["method"]: (row["runs"], row["left out"]) for row in tables["scores"]} == {
        "ours": ("5", "1"),
        "uniform": ("6", "0"),
    }
    states = {(row["method"], row["seed"]): row["state"] for row in tables["runs"]}
    assert [key for key, state in states.items() if state != "done"] == [("ours", "3")]
    assert states["ours", "3"] == "done, no finite score"


def test_a_return_that_the_score_does_not_count_costs_nothing(tmp_path: Path) -> None:
    """The first of four evaluations, which some programs write as nan."""
    (finding,) = judged(read_runs([write_csv(tmp_path / "runs.csv", "nan", step=5)]))
    assert (finding.outcome, finding.left_out, finding.runs) == ("better", (), (6, 6))


def test_a_method_of_which_no_run_has_a_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv(tmp_path / "runs.csv", "0")
    path.write_text(re.sub(r"(ours,.*),[^,]*$", r"\1,nan", path.read_text(), flags=re.MULTILINE))
    assert main(["report", str(path), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("No verdict: ours against uniform. There are no runs to compare yet; 6 runs without")
    assert "6 runs have no finite score and are left out: ours on Hop with seed 1; ours on Hop with seed 2" in said


def test_evaluations_npz_that_are_not_finite(tmp_path: Path) -> None:
    for method, level in (("ours", 200.0), ("uniform", 100.0)):
        for seed in range(1, 7):
            results = level + seed + np.zeros((4, 3))
            if (method, seed) == ("ours", 3):
                results[-1] = [np.inf, -np.inf, 1e308]
            folder = tmp_path / method / f"Hop_{seed}"
            folder.mkdir(parents=True)
            np.savez(folder / "evaluations.npz", timesteps=[5, 10, 15, 20], results=results)
    (finding,) = judged(read_runs([tmp_path]))
    assert (finding.outcome, finding.left_out) == ("no verdict", ("ours on Hop with seed 3",))


def test_only_the_comparisons_of_that_run_have_no_verdict() -> None:
    five = np.arange(100.0, 105.0)
    scores = {name: {"Hopper-v5": five + gain, "Ant-v5": five} for name, gain in (("a", 50), ("b", 0), ("c", -50))}
    lost = [Record("a", "Hopper-v5", 6, five, five * np.nan), Record("b", "Pong", 1, five, five * np.nan)]
    outcomes = {
        (one, other, suite): judge(Claim(one, other, suite=suite), scores, left_out=lost).outcome
        for one, other, suite in [("a", "b", ""), ("b", "a", ""), ("b", "c", ""), ("a", "b", "Atari")]
    }
    assert outcomes == {
        ("a", "b", ""): "no verdict",
        ("b", "a", ""): "no verdict",
        ("b", "c", ""): "better",  # c never ran on Pong, so that the run of b there is compared with nothing
        ("a", "b", "Atari"): "undecided",
    }


def test_a_measure_that_is_not_finite() -> None:
    steps = np.arange(1, 5)
    records = [
        Record(method, "Hop", seed, steps, steps * 1.0, series={"batch/critics/churn": (steps, steps * level * seed)})
        for method, level in (("a", 1.0), ("b", 9.0))
        for seed in (1, 2, 3, 4, 5)
    ]
    steps_of, values = records[0].series["batch/critics/churn"]
    records[0].series["batch/critics/churn"] = (steps_of, np.full(len(values), np.inf))  # type: ignore[index]
    (finding,) = findings_of(records, [Claim("a", "b", measure="critics/churn")], About())
    assert finding.outcome == "no verdict"
    assert "1 run has no finite batch/critics/churn and is left out: a on Hop with seed 1." in finding.why


# Our own runs, whose metrics.jsonl has null for what is not finite.


def spoil(run: Path, evaluations: slice) -> None:
    """Make these evaluations of a run null, as `Run.log` writes NaN."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in [line for line in lines if "eval_return" in line][evaluations]:
        line["eval_return"] = None
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("evaluations", [slice(-1, None), slice(None)], ids=["the last", "all"])
def test_a_run_that_diverged_is_left_out_from_its_directory_and_from_its_archive(
    evaluations: slice, tmp_path: Path
) -> None:
    write_runs(tmp_path / "runs", seeds=6)
    run = next(path for path in sorted((tmp_path / "runs").glob("Hopper-v5/td3-swd/*")))
    spoil(run, evaluations)
    archive([tmp_path / "runs"], tmp_path / "archives")
    records = [read_runs([tmp_path / place]) for place in ("runs", "archives")]
    for (finding,) in map(judged, records):
        assert finding.outcome == "no verdict"
        assert finding.left_out == ("td3-swd on Hopper-v5 with seed 1",)
        assert finding.runs == (11, 12)
    assert all(record.evaluated for record in records[0])  # training episodes do not stand in
    assert repr(judged(records[0])) == repr(judged(records[1]))


def history(finite: list[int], missing: int, envs: int = 1, every: int = 10, total: int = 40) -> History:
    config = TrainConfig("Hop", total_timesteps=total, num_envs=envs, eval_every=every)
    series = (np.array(finite, np.int64), np.ones(len(finite)))
    return History(config, {}, True, series, (np.empty(0), np.empty(0)), missing, (), {}, {})


@pytest.mark.parametrize(
    ("run_history", "steps", "where"),
    [
        (history([10, 20, 40], 1), [10, 20, 30, 40], [30]),
        (history([], 4), [10, 20, 30, 40], [10, 20, 30, 40]),
        (history([12, 32, 40], 1, envs=4), [12, 20, 32, 40], [20]),
        (history([8, 24, 32], 2, envs=8, every=5), [8, 16, 24, 32, 40], [16, 40]),
        (history([10, 20, 30, 40], 0), [10, 20, 30, 40], []),
        (history([7, 14], 1), [7, 14, 40], [40]),  # made with another --eval-every: they count as the last
    ],
)
def test_where_the_evaluations_were_that_are_not_finite(
    run_history: History, steps: list[int], where: list[int]
) -> None:
    all_steps, returns = _evaluations(run_history)
    assert all_steps.tolist() == steps
    assert all_steps[np.isnan(returns)].tolist() == where


def test_an_early_evaluation_that_is_not_finite_costs_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Hopper-v5", "swd", 1, 100.0)
    before = scores_of(read_runs([tmp_path]))
    facts = json.loads((run / "config.json").read_text())
    facts["config"]["eval_every"] = 1_000  # as these made-up runs have it
    (run / "config.json").write_text(json.dumps(facts))
    spoil(run, slice(0, 2))
    (record,) = read_runs([tmp_path])
    assert record.not_finite == 2
    assert scores_of([record]) == before


# The arithmetic.


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_permutation_test_refuses_what_is_not_finite(bad: float) -> None:
    five = np.arange(5.0)
    for method, baseline in (([five, np.array([1.0, bad])], [five, five]), ([five], [np.array([bad, 2.0])])):
        with pytest.raises(UsageError, match="needs finite scores"):
            permutation_test(method, baseline)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-100, 1e100, 1e160, 1e307])
def test_the_permutation_test_is_the_same_at_every_size(size: float) -> None:
    """Whose squares would overflow or vanish."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(13, 1, 5), rng.normal(10, 1, 6)
    one, other = permutation_test([a], [b]), permutation_test([a * size], [b * size])
    for name in ("gain", "low", "high", "p", "detectable", "smallest_p"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-6)


@pytest.mark.parametrize("ratio", [1e12, 1e50, 1e99])
def test_a_gain_beyond_measure_has_a_bounded_interval(ratio: float) -> None:
    test = permutation_test([np.full(6, ratio)], [np.ones(6)])
    assert test.gain > 1e11  # beyond 1e15 rounding counts as spread
    assert 0 < test.low <= test.gain <= test.high < np.inf
    assert test.p == pytest.approx(2 / 924)


def test_a_curve_leaves_out_what_is_not_finite() -> None:
    steps = np.array([1, 2, 3])
    good, bad = np.array([1.0, 2.0, 3.0]), np.array([3.0, np.inf, 10 * LARGEST])
    drawn = curve("a", [(steps, good), (steps, bad)])
    assert drawn is not None
    assert drawn.mean.tolist() == [2.0, 2.0, 3.0]
    assert drawn.runs == "1 to 2 runs"
    assert curve("a", [(steps, np.full(3, np.nan))]) is None


@pytest.mark.slow
def test_the_page_of_claims_names_it_and_gives_no_verdict(tmp_path: Path) -> None:
    plan = load_plan("swd/fig2", "laptop")
    for run in plan.runs:
        better = 1.3 if "swd" in run.method else 1.0
        path = write_planned(tmp_path / "runs", run, 1_000 * better * (1 + 0.01 * run.config.seed))
        if (run.method, run.config.env, run.config.seed) == ("swd", "Hopper-v5", 2):
            spoil(path, slice(-1, None))
    archive([tmp_path / "runs"], tmp_path / "archives")
    rows = [line for line in page(tmp_path / "archives").splitlines() if line.startswith("| `swd/fig2` |")]
    spoiled = [row for row in rows if "| swd against uniform |" in row]
    assert len(spoiled) == 1
    assert "| no verdict. 1 run has no finite score and is left out: swd on Hopper-v5 with seed 2. A run" in spoiled[0]
    assert sum("reproduced" in row for row in rows) == len(rows) - sum("no verdict" in row for row in rows) > 0
