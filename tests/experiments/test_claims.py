"""What our plans claim, of which batch and which suite; and what their laptop parts say that they reduce."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from made_up import write_planned
from neoteny.agents.configs import DDQNConfig
from neoteny.cli import main
from neoteny.commands.archive import archive
from neoteny.commands.claims import page
from neoteny.commands.report import about, findings, report_plan
from neoteny.errors import UsageError
from neoteny.experiments.plan import Plan, load_plan, make_plan, papers_plans, scales_of
from neoteny.replay.registry import make_sampler
from neoteny.report import words
from neoteny.report.archive import archived_in, read_archive
from neoteny.report.gather import gather
from neoteny.report.scores import read_runs
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training.start import train
from probes import Pixels

EVERY = [name for name in papers_plans() if name.startswith(("swd/", "controls/"))]
WITH_LAPTOP = [name for name in EVERY if "laptop" in scales_of(name)]
OWN = """
title = "My own question"
agent = "td3"
environments = ["Pendulum-v1"]
steps = 1_000
seeds = [1, 2]
methods = { uniform = {}, swd = { replay = "swd" } }
"""
LAPTOP = """
[laptop]
steps = 500
"""


def test_what_our_plans_claim() -> None:
    """The paper's own, with its effect where it gives one; our controls nothing of the paper's."""
    for name in EVERY:
        plan = load_plan(name)
        assert plan.claims is not None
        assert bool(plan.claims) == (name != "swd/tab12")
        assert any(claim.paper for claim in plan.claims) == (name.startswith("swd/") and name != "swd/tab12")
        assert plan.speaks
        assert name not in WITH_LAPTOP or load_plan(name, "laptop").speaks
    utd = {claim.method: (claim.baseline, claim.effect) for claim in load_plan("swd/fig10").claims or ()}
    assert utd["swd, utd 5"] == ("uniform, utd 5", 0.301)
    table = {claim.method: claim.effect for claim in load_plan("swd/tab2").claims or ()}
    assert table["swd, exact"] == pytest.approx(229.01 / 190.46 - 1, abs=5e-4)
    assert table["swd, bucketed"] == pytest.approx(224.93 / 190.46 - 1, abs=5e-4)


@pytest.mark.parametrize("name", ["swd/fig1", "swd/fig2", "swd/fig3", "swd/fig4"])
def test_no_suite_carries_an_effect_that_the_paper_does_not_give_for_it(name: str) -> None:
    """It gives 13.7% to 30.1% over everything, and does not say which is whose."""
    for scale in scales_of(name):
        assert {claim.effect for claim in load_plan(name, scale).claims or ()} == {None}


def _settings(plan: Plan) -> dict[str, set[Any]]:
    """The values of each setting, by its name."""
    by_setting: dict[str, set[Any]] = {}
    for run in plan.runs:
        for remedy in run.config.remedies:
            for field in dataclasses.fields(remedy):
                by_setting.setdefault(remedy.setting(field.name), set()).add(getattr(remedy, field.name))
        by_setting.setdefault("remedy", set()).add(tuple(remedy.name for remedy in run.config.remedies))
        for part in (run.config, run.config.agent, run.config.replay, run.config.plasticity):
            for field in dataclasses.fields(part):
                value = getattr(part, field.name)
                if field.name not in ("agent", "replay", "plasticity", "remedies") or isinstance(value, str):
                    by_setting.setdefault(field.name, set()).add(value)
    return by_setting


@pytest.mark.parametrize("name", WITH_LAPTOP)
def test_reduced_names_every_setting_that_differs(name: str) -> None:
    full, laptop = load_plan(name), load_plan(name, "laptop")
    before, after = _settings(full), _settings(laptop)
    differing = {key for key in before if before[key] != after[key]}
    assert {"env", "total_timesteps"} <= differing
    for key in differing - {"env", "seed"}:
        name = {"total_timesteps": "steps"}.get(key, key.replace("_", " "))
        if values := after[key] - before[key] - {None}:
            assert any(re.search(rf"{name} [^;]*{_shown(value)}", laptop.reduced) for value in values), key
        assert name in laptop.reduced
    assert all(env in laptop.reduced for env in after["env"] - before["env"])
    if len(after["seed"]) != len(before["seed"]):
        assert re.search(rf"{len(after['seed'])} seeds instead of {len(before['seed'])}", laptop.reduced)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def test_what_the_laptop_part_of_fig2_reduces() -> None:
    assert load_plan("swd/fig2", "laptop").reduced == (
        "Hopper-v5, HalfCheetah-v5 instead of 5 tasks, learning starts 10,000 instead of 25,000, decay steps 20,000 as "
        "well, steps 200,000 instead of 1,000,000"
    )


def test_fig3_draws_by_the_papers_2000_buckets_with_the_exact_law_beside_it() -> None:
    """Its Table 10."""
    replays = {run.method: run.config.replay for run in load_plan("swd/fig3").runs}
    drawn = {
        method: make_sampler(replay.replay, replay.replay_sampler, 80_000, replay.numbers())
        for method, replay in replays.items()
    }
    assert drawn["swd"].buckets == 2_000  # type: ignore[attr-defined]
    assert drawn["swd"].schedule == drawn["swd, exact"].schedule  # type: ignore[attr-defined]
    assert not hasattr(drawn["swd, exact"], "buckets")


@pytest.mark.slow
def test_double_dqn_draws_frames_by_buckets(tmp_path: Path) -> None:
    config = TrainConfig(
        "pixels",
        DDQNConfig(batch_size=8, learning_starts=50, cnn_width=4),
        ReplayConfig("swd", "bucketed", capacity=100, decay_steps=40),
        PlasticityConfig(probe_every=0),
        total_timesteps=250,
        eval_every=0,
    )
    run = train(config, out=tmp_path / "run", make_env=Pixels)
    (record,) = read_runs([], {run: "swd"})
    ages = record.series["age_mean"][1]
    assert 0 < ages[-1] < 45  # the exact law has 33.6, uniform replay 50.5


def test_fig1_keeps_its_suites_apart(tmp_path: Path) -> None:
    """SWD is made up to be better on MuJoCo, worse on Atari and equal on DeepMind Control."""
    plan = load_plan("swd/fig1")
    gains = {"td3": 1.3, "ddqn": 0.7, "sac": 1.0}
    for run in plan.runs:
        gain = gains[run.config.agent_name] if run.method.startswith("swd") else 1.0
        write_planned(tmp_path, run, 500 * gain * (1 + 0.02 * run.config.seed))
    names = {tmp_path / run.directory: run.method for run in plan.runs}
    report = gather(read_runs([], names), about(plan), plan.claims)
    assert list(report.aggregates) == ["MuJoCo", "Atari", "DeepMind Control"]
    methods = {suite: set(by_name["IQM"]) for suite, by_name in report.aggregates.items()}
    assert methods["MuJoCo"] == methods["DeepMind Control"] == {"uniform", "swd", "per"}
    assert methods["Atari"] == {"uniform", "swd", "swd, exact"}
    by_claim = {(f.claim.suite, f.claim.method, f.claim.baseline): f for f in report.findings}
    assert {pair[1:] for pair in by_claim if pair[0] == "MuJoCo"} == {("swd", "uniform"), ("swd", "per")}
    assert by_claim["MuJoCo", "swd", "uniform"].outcome == "reproduced"
    assert by_claim["Atari", "swd", "uniform"].outcome == "refuted"
    assert by_claim["DeepMind Control", "swd", "uniform"].outcome == "undecided"
    assert [len(by_claim[suite, "swd", "uniform"].tasks) for suite in report.aggregates] == [5, 3, 4]
    assert "The size of this effect is not given" in words.paper(by_claim["Atari", "swd", "uniform"], report.about)
    (section,) = (section for section in report.sections if section.name == "aggregates")
    assert [panel.title for panel in section.panels][:3] == ["IQM, MuJoCo", "IQM, Atari", "IQM, DeepMind Control"]
    sizes = {len(panel.curves) for section in report.sections if section.name == "profiles" for panel in section.panels}
    assert sizes == {3}


def test_figures_5_and_6_are_judged_on_the_training_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the probe batch says the opposite of it; on the probe batch only if the claim names that."""
    better, worse = {"swa": 1.0, "uniform": 2.0, "swd": 3.0}, {"swa": 3.0, "uniform": 2.0, "swd": 1.0}
    directions = {
        "gradient_l1": (better, worse),
        "grama_inactive": (worse, better),
        "gradient_sparsity": (worse, better),
    }
    for name in ("swd/fig5", "swd/fig6"):
        plan, place = load_plan(name), tmp_path / name
        for run in plan.runs:
            measures = {
                f"{where}/critics/{measure}": levels[run.method] * (1 + 0.01 * run.config.seed)
                for measure, both in directions.items()
                for where, levels in zip(("batch", "probe"), both, strict=True)
            }
            write_planned(place, run, 100 * better[run.method] * (1 + 0.01 * run.config.seed), measures)
        said = findings(plan, [place])
        assert {finding.outcome for finding in said} == {"reproduced"}
        shown = [words.comparison(finding) for finding in said]
        assert "swd against uniform, critics/gradient_sparsity on the training batch (less is better)" in shown
        assert "swd against uniform, critics/grama_inactive on the training batch (less is better)" in shown
        on_the_probe = [
            dataclasses.replace(claim, measure=claim.measure.replace("batch/", "probe/"))
            for claim in plan.claims or ()
            if claim.measure != "score"
        ]
        opposite = findings(dataclasses.replace(plan, claims=tuple(on_the_probe)), [place])
        assert {finding.outcome for finding in opposite} == {"refuted"}
        assert all("on the probe batch" in words.comparison(finding) for finding in opposite)
    page = report_plan(load_plan("swd/fig5"), [tmp_path / "swd/fig5"], tmp_path / "out").read_text()
    for title in ("gradient_sparsity, training batch", "gradient_sparsity, probe batch", "gradient_l1, training batch"):
        assert f"<h3>{title}</h3>" in page
    assert "critics/gradient_l1 on the training batch" in capsys.readouterr().out


def test_the_rank_of_the_ntk_is_charted_and_judged(tmp_path: Path) -> None:
    """Mechanism 1: fig8's remedies are said to restore it; of SWD the paper says no such thing."""
    plan = load_plan("swd/fig8")
    for run in plan.runs:
        rank = 10.0 if run.method in ("uniform", "swd") else 20.0
        write_planned(tmp_path, run, 100.0, {"batch/critics/ntk_effective_rank": rank + 0.1 * run.config.seed})
    said = {
        (finding.claim.method, finding.claim.baseline): finding
        for finding in findings(plan, [tmp_path])
        if finding.claim.measure == "batch/critics/ntk_effective_rank"
    }
    assert {pair: finding.outcome for pair, finding in said.items()} == {
        ("regrama", "uniform"): "reproduced",
        ("s&p", "uniform"): "reproduced",
        ("injection", "uniform"): "reproduced",
        ("swd", "uniform"): "undecided",
    }
    assert words.paper(said["swd", "uniform"], about(plan)) == "The paper makes no such claim."
    page = report_plan(plan, [tmp_path], tmp_path / "out").read_text()
    assert "<h3>ntk_effective_rank, training batch</h3>" in page
    assert "injection against uniform, critics/ntk_effective_rank on the training batch" in page


@pytest.mark.parametrize("scale", ["full", "laptop"])
def test_the_page_of_a_users_own_plan_says_nothing_of_the_paper(
    scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor of a scale, unless it is the plan's own smaller one."""
    (tmp_path / "mine.toml").write_text(OWN + LAPTOP)
    for run in load_plan(str(tmp_path / "mine.toml"), scale).runs:
        write_planned(tmp_path / "runs", run, 100.0 + run.config.seed)
    flags = ["--plan", str(tmp_path / "mine.toml"), "--scale", scale, "--out", str(tmp_path / "out")]
    assert main(["report", str(tmp_path / "runs"), *flags]) == 0
    body = (tmp_path / "out" / "index.html").read_text().split("<body>")[1].split("<footer>")[0]
    for text in (re.sub(r"<[^>]+>", " ", body).lower(), capsys.readouterr().out.lower()):
        assert "paper" not in text
        assert "full scale" not in text
        assert ("mine, laptop scale. reduced: steps 500 instead of 1,000." in text) == (scale == "laptop")
        assert "these runs cannot detect any effect at 5%" in text


def test_the_scale_of_a_control_is_on_its_verdicts(tmp_path: Path) -> None:
    plan = load_plan("controls/window", "laptop")
    for run in plan.runs:
        write_planned(tmp_path, run, 1_000 + run.config.seed + 500 * ("swd" in run.method))
    (finding, *_) = findings(plan, [tmp_path])
    assert words.outcome(finding, about(plan)) == "better, laptop scale"
    assert about(plan).said == "Not in the paper."


def test_claims_of_a_plan_that_has_no_laptop_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text(OWN)
    for module in ("commands.claims", "experiments.plan"):  # claims is imported as it is, before plan is changed
        monkeypatch.setattr(f"neoteny.{module}.papers_plans", lambda: {"ours/mine": tmp_path / "mine.toml"})
    assert main(["claims", "--out", str(tmp_path), "--archives", str(tmp_path)]) == 0
    assert "runs done: 0 of 4 at full scale\n" in capsys.readouterr().out


def test_a_suite_that_is_none_is_refused() -> None:
    claims = [{"method": "swd", "baseline": "uniform", "suite": "Mujoco"}]
    data = {"title": "x", "agent": "td3", "environments": ["Hopper-v5"], "steps": 10, "seeds": [1], "claims": claims}
    with pytest.raises(UsageError, match="a claim's suite is one of MuJoCo, Atari, DeepMind Control, other tasks, got"):
        make_plan("p", {**data, "methods": {"uniform": {}, "swd": {"replay": "swd"}}})


def test_the_page_of_results_has_a_line_for_each_claim(tmp_path: Path) -> None:
    plan = load_plan("programme/fig2-three")
    for run in plan.runs[:4]:
        write_planned(tmp_path / "runs", run, 1_000 + run.config.seed + 500 * (run.method == "swd"))
    archive([tmp_path / "runs"], tmp_path / "results")
    said = page(tmp_path / "results")
    lines = [line for line in said.splitlines() if line.startswith("| `")]
    assert [line.split("|")[1].strip() for line in lines][-3:] == [
        "`programme/fig2-five`",
        "`programme/fig2-per`",
        "`programme/fig2-three`",
    ]
    assert "| swd against uniform |" in lines[-1]
    assert "undecided. Only 4 of the 30 planned runs are done." in lines[-1]
    assert "| 4 of 30 | full | `neoteny reproduce programme/fig2-three` |" in lines[-1]
    assert main(["claims", "--archives", str(tmp_path / "results"), "--page", str(tmp_path / "README.md")]) == 0
    assert (tmp_path / "README.md").read_text() == said


def test_the_results_of_this_repository_can_be_read_and_their_page_is_generated() -> None:
    results = Path(__file__).parents[2] / "results"
    assert (results / "README.md").read_text() == page(results), "neoteny claims --page results/README.md"
    for path in archived_in(results).values():
        assert read_archive(path).facts["source"]["commit"]
        assert path.stat().st_size < 200_000
