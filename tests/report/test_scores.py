"""Reading runs: ours, SB3's and a tidy CSV; their scores; what they are called."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import neoteny
from made_up import STEPS, write_run, write_runs
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.report import words
from neoteny.report.about import About
from neoteny.report.gather import default_claims, gather
from neoteny.report.scores import Record, full_measure, late, read_runs, scores_of
from neoteny.report.verdict import Claim, judge


@pytest.mark.parametrize(("evaluations", "taken"), [(100, 10), (45, 5), (20, 3), (3, 3), (2, 2)])
def test_a_score_is_the_mean_of_the_last_tenth_and_of_at_least_3(evaluations: int, taken: int) -> None:
    values = np.arange(evaluations) ** 2.0
    assert late(values) == pytest.approx(values[-taken:].mean())


def test_our_runs_as_a_table(tmp_path: Path) -> None:
    table = neoteny.load_runs(write_runs(tmp_path, seeds=2))
    assert list(table.columns) == ["method", "task", "seed", "step", "return"]
    assert len(table) == 2 * 2 * 2 * 20
    assert set(table["method"]) == {"td3-uniform", "td3-swd"}
    one = table[(table.method == "td3-swd") & (table.task == "Hopper-v5") & (table.seed == 2)]
    assert one["step"].tolist() == STEPS.tolist()
    (record,) = (r for r in read_runs([tmp_path]) if (r.method, r.task, r.seed) == ("td3-swd", "Hopper-v5", 2))
    assert scores_of([record])["td3-swd"]["Hopper-v5"] == pytest.approx([one["return"].tolist()[-3:] @ np.ones(3) / 3])
    assert record.seconds == 3_600 + 1_800  # of both lives
    assert (record.steps_per_second, record.peak_mb) == (60, 700)
    assert record.series["probe/critics/dormant_0.1"][1][0] == pytest.approx(0.105)
    assert record.series["batch/critics/dormant_0.1"][1][0] == pytest.approx(9.01)


def test_a_measure_is_of_the_training_batch_unless_it_is_measured_only_on_the_probe() -> None:
    one = (np.arange(3), np.ones(3))
    names = ("batch/critics/gradient_l1", "probe/critics/gradient_l1", "probe/critics/trainability")
    record = Record("swd", "Hopper-v5", 1, *one, series=dict.fromkeys(names, one))
    for measure, full in {
        "critics/gradient_l1": "batch/critics/gradient_l1",
        "batch/critics/gradient_l1": "batch/critics/gradient_l1",
        "probe/critics/gradient_l1": "probe/critics/gradient_l1",
        "critics/trainability": "probe/critics/trainability",
        "batch/critics/trainability": "batch/critics/trainability",  # never another batch than the one named
        "score": "score",
        "critics/unknown": "critics/unknown",
    }.items():
        assert full_measure([record], measure) == full


def test_unfinished_runs_have_no_score_and_training_stands_in_for_evaluations(tmp_path: Path) -> None:
    write_run(tmp_path, "Hopper-v5", "uniform", 1, 10.0, done=False)
    write_run(tmp_path, "Hopper-v5", "swd", 1, 10.0, evaluate=False)
    records = {record.method: record for record in read_runs([tmp_path])}
    assert list(scores_of(list(records.values()))) == ["td3-swd"]
    assert not records["td3-swd"].evaluated


def test_runs_of_one_name_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    write_run(tmp_path, "Hopper-v5", "swd", 1, 10.0, decay_steps=500)
    write_run(tmp_path, "Hopper-v5", "swd", 1, 10.0, decay_steps=700)
    write_run(tmp_path, "Hopper-v5", "uniform", 1, 10.0)
    assert {record.method for record in read_runs([tmp_path])} == {
        "td3-swd, decay_steps 500",
        "td3-swd, decay_steps 700",
        "td3-uniform",
    }


def test_a_tidy_csv(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text("method,task,seed,step,return,extra\nppo,Ant,3,20,5.5,x\nppo,Ant,3,10,4.5,x\nppo,Ant,4,10,1,x\n")
    table = neoteny.load_runs(path)
    assert table.to_numpy().tolist() == [
        ["ppo", "Ant", 3, 10, 4.5],
        ["ppo", "Ant", 3, 20, 5.5],
        ["ppo", "Ant", 4, 10, 1.0],
    ]


def test_evaluations_of_sb3(tmp_path: Path) -> None:
    """As EvalCallback itself writes them."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import EvalCallback

    for place in ("dqn/CartPole-v1_1", "other/CartPole-v1/seed2"):
        folder = tmp_path / place
        agent = DQN("MlpPolicy", "CartPole-v1", seed=1)
        watch = EvalCallback(agent.env, n_eval_episodes=2, eval_freq=20, log_path=str(folder), verbose=0, warn=False)
        agent.learn(60, callback=watch)
    table = neoteny.load_runs(tmp_path)
    assert set(zip(table.method, table.task, table.seed, strict=True)) == {
        ("dqn", "CartPole-v1", 1),
        ("other", "CartPole-v1", 2),
    }
    with np.load(tmp_path / "dqn/CartPole-v1_1/evaluations.npz") as data:
        assert table[table.method == "dqn"]["return"].tolist() == data["results"].mean(axis=1).tolist()


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "short.csv").write_text("method,task,step\n")
    (tmp_path / "words.csv").write_text("method,task,seed,step,return\na,b,one,2,3\n")
    (tmp_path / "evaluations.npz").write_text("no archive")
    (tmp_path / "empty").mkdir()
    (tmp_path / "twice.csv").write_text("method,task,seed,step,return\na,b,1,2,3\n")
    for message, paths in {
        "lacks the columns seed, return": ["short.csv"],
        "line 2: the seed is 'one': it must be a whole number": ["words.csv"],
        "is not an evaluations.npz": ["evaluations.npz"],
        "there are no runs in": ["empty"],
        "there is no ": ["nowhere"],
        "are both a on b with seed 1": ["twice.csv", "twice.csv"],
    }.items():
        with pytest.raises(UsageError, match=message):
            read_runs([tmp_path / path for path in paths])
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "there is no " in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--plan", "swd/fig2"]) == 2
    assert "none of the 75 runs of swd/fig2 at full scale is in" in capsys.readouterr().err


def test_evaluations_that_are_not_finite_are_said_to_be(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Hopper-v5", "uniform", 1, 100.0)
    metrics = run / "metrics.jsonl"
    metrics.write_text(re.sub(r'"eval_return": [^}]*', '"eval_return": null', metrics.read_text()))
    (record,) = read_runs([tmp_path])
    assert (record.evaluated, record.not_finite) == (True, 20)
    notes = gather([record], About("Report")).notes
    assert any("was returned in 20 evaluations of 1 run" in note for note in notes)
    assert not any("Not evaluated" in note for note in notes)


def test_a_method_is_compared_with_the_uniform_replay_of_its_own_agent() -> None:
    methods = ["td3-uniform", "td3-swd", "ddqn-swd", "ddqn-uniform", "ddqn-uniform, threads 2"]
    pairs = [(claim.method, claim.baseline) for claim in default_claims(methods)]
    assert pairs == [
        ("td3-swd", "td3-uniform"),
        ("ddqn-swd", "ddqn-uniform"),
        ("ddqn-uniform, threads 2", "ddqn-uniform"),
    ]
    assert [claim.baseline for claim in default_claims(["mine", "uniform replay", "theirs"])] == ["uniform replay"] * 2


def test_the_mean_return_is_of_all_evaluations() -> None:
    returns = np.arange(40.0)
    record = Record("a", "task", 1, np.arange(40), returns)
    assert record.late("mean_return") == 19.5
    assert record.late() == 37.5  # of the last four
    spoiled = Record("a", "task", 1, np.arange(40), np.r_[np.nan, returns[1:]])
    assert np.isnan(spoiled.late("mean_return") or 0.0)
    assert Record("a", "task", 1, np.arange(40), returns, done=False).late("mean_return") is None
    found = judge(Claim("a", "b", measure="mean_return"), {"a": {"task": returns}, "b": {"task": returns}})
    assert words.comparison(found) == "a against b, mean of all evaluations"
