"""The laboratory's plans: their controls, their arithmetic in results/PROGRAMME.md, and that each can be run."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neoteny
from made_up import write_planned
from neoteny.cli import main
from neoteny.commands.report import report_plan
from neoteny.errors import UsageError
from neoteny.experiments.cores import usable_cores
from neoteny.experiments.plan import Plan, instead, load_plan, make_plan, papers_plans, scales_of
from neoteny.experiments.sweep import sweep

LAB = [name for name in papers_plans() if name.startswith("lab/")]
FILES = {name: tomllib.loads(papers_plans()[name].read_text()) for name in LAB}
ALONE = [name for name in LAB if "includes" not in FILES[name]]
"""Those that include no others."""
AGED = [(name, "full") for name in ALONE] + [(name, "quick") for name in ALONE if "methods" in FILES[name]["quick"]]
"""Those with methods of their own at each scale; the quick scale may leave them as they are."""
CONTROLS = {"uniform", "swd", "uniform, same mean age", "truncated geometric, same mean age", "reset", "layernorm"}
PROGRAMME = (Path(__file__).parents[2] / "results" / "PROGRAMME.md").read_text()


def plain(method: str) -> str:
    """A method's name without the grid's values."""
    return re.sub(r", utd \d+$", "", method)


def sizes_of(steps: int) -> list[int]:
    """What a buffer that keeps the whole run contains in the middle of each tenth of it."""
    return [steps * (2 * tenth + 1) // 20 for tenth in range(10)]


def numbers(plan: Plan) -> dict[str, Any]:
    """The replay of each method."""
    return {plain(run.method): run.config.replay for run in plan.runs}


@pytest.mark.parametrize("name", LAB)
def test_five_seeds_at_full_scale_and_no_verdict_from_the_quick_one(name: str) -> None:
    assert scales_of(name) == ("full", "quick")
    full, quick = load_plan(name), load_plan(name, "quick")
    counts = Counter((run.method, run.config.env) for run in full.runs)
    assert set(counts.values()) == {5}
    assert full.speaks
    assert not quick.speaks
    assert quick.reduced.endswith("it decides nothing")
    assert {run.method for run in quick.runs} == {run.method for run in full.runs}


@pytest.mark.parametrize("name", ["lab/priming", "lab/drift", "lab/minatar"])
def test_every_task_and_number_of_updates_has_the_controls(name: str) -> None:
    by_task: dict[tuple[str, float], set[str]] = {}
    for run in load_plan(name).runs:
        by_task.setdefault((run.config.env, run.config.agent.utd), set()).add(plain(run.method))
    extra = {"uniform, not primed"} if name == "lab/priming" else set()
    assert all(methods == CONTROLS | extra for methods in by_task.values())
    claimed = {(plain(claim.method), plain(claim.baseline)) for claim in load_plan(name).claims or ()}
    assert {("swd", control) for control in CONTROLS if "uniform" in control or "same" in control} <= claimed
    assert ("uniform, not primed", "uniform") in claimed or not extra


def test_priming_is_what_it_says() -> None:
    for run in load_plan("lab/priming").runs:
        config = run.config
        primed = 0 if "not primed" in run.method else 100_000
        assert (config.agent_name, config.total_timesteps, config.agent.learning_starts) == ("td3", 150_000, 100)
        assert (config.priming_updates, config.priming_steps) == (primed, 100)


@pytest.mark.parametrize(("name", "scale"), AGED)
def test_the_controls_are_as_old_as_swd_on_average_over_the_run(name: str, scale: str) -> None:
    """By hand: the mean over the run of what SWD draws, and of min(stored, capacity) / 2."""
    plan = load_plan(name, scale)
    replays, sizes = numbers(plan), sizes_of(plan.runs[0].config.total_timesteps)
    swd, aim = replays["swd"], []
    for size in sizes:
        ages = np.arange(1, size + 1)
        weights = np.maximum(swd.min_weight, 1 - ages / swd.decay_steps)
        aim.append(ages @ weights / weights.sum())
    bounded = [(min(size, replays["uniform, same mean age"].capacity) + 1) / 2 for size in sizes]
    geometric = [min((size + 1) / 2, replays["truncated geometric, same mean age"].mean_age) for size in sizes]
    assert np.mean(bounded) == pytest.approx(np.mean(aim), abs=1)
    assert np.mean(geometric) == pytest.approx(np.mean(aim), abs=1)
    assert replays["uniform"].capacity >= plan.runs[0].config.total_timesteps


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lab/priming", "lab/drift-td3", "lab/minatar", "lab/remedies-minatar"])
@pytest.mark.parametrize("scale", ["full", "quick"])
def test_the_numbers_of_equal_age_are_those_of_match(name: str, scale: str) -> None:
    """Of every pair of a length and a T; plans that share one have the same numbers, by the test before."""
    if (name, scale) not in AGED:
        pytest.skip("the quick scale has the methods of the full one")
    plan = load_plan(name, scale)
    replays, sizes = numbers(plan), sizes_of(plan.runs[0].config.total_timesteps)
    like = neoteny.LinearDecay(replays["swd"].decay_steps, replays["swd"].min_weight)
    geometric = neoteny.match(neoteny.TruncatedGeometric(), like=like, by="mean_age", capacity=sizes)
    assert replays["truncated geometric, same mean age"].mean_age == round(geometric.mean_age)
    window = neoteny.match(neoteny.Window(), like=like, by="mean_age", capacity=sizes)
    assert abs(replays["uniform, same mean age"].capacity - window.steps) <= 1


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the programme."""
    below = PROGRAMME.split(f"### {heading}\n")[1].split("\n### ")[0].split("\n## ")[0]
    table = [line for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_hours_in_the_programme_are_those_of_the_plans() -> None:
    """Every kind of run of every plan is there, with its steps; hours follow, at most 12 on two cores."""
    said: dict[str, Counter[tuple[str, float]]] = {}
    hours: Counter[str] = Counter()
    for plan_cell, task, utd, runs, steps, each_ms, besides, core_hours in rows_of("Hours"):
        name = plan_cell.strip("`")
        said.setdefault(name, Counter())[(task, number(utd))] += int(runs)
        for run in load_plan(name).runs:
            if (run.config.env, run.config.agent.utd) == (task, number(utd)):
                assert run.config.total_timesteps == number(steps)
        computed = int(runs) * (number(steps) * number(each_ms) / 1e3 + number(besides)) / 3600
        assert number(core_hours) == pytest.approx(computed, abs=0.051), (name, task, utd)
        hours[name] += number(core_hours)
    assert set(said) == set(ALONE)
    for name, kinds in said.items():
        assert kinds == Counter((run.config.env, run.config.agent.utd) for run in load_plan(name).runs), name
    for cells in rows_of("Whole plans"):
        name = cells[0].strip("`")
        parts = FILES[name].get("includes", [name])
        assert int(cells[1]) == len(load_plan(name).runs)
        assert number(cells[2]) == pytest.approx(sum(hours[part] for part in parts) / 2, abs=0.11)
        assert number(cells[2]) <= 12
    assert {cells[0].strip("`") for cells in rows_of("Whole plans")} == {
        "lab/priming",
        "lab/drift",
        "lab/minatar",
        "lab/horizon",
        "lab/remedies-priming",
        "lab/remedies-minatar",
    }


def test_the_papers_plans_name_the_laboratorys_for_a_laptop(capsys: pytest.CaptureFixture[str]) -> None:
    named = {name: other["laptop"] for name in papers_plans() if (other := instead(name))}
    assert set(named) == {
        *(f"swd/{part}" for part in ("fig3", "fig5", "fig6", "fig7", "fig8", "fig10", "tab13")),
        *("controls/remedies", "controls/horizon"),
    }
    assert set(named.values()) <= set(LAB)
    for name, other in named.items():
        plan = load_plan(name, "laptop")
        assert (plan.name, plan.scale, plan.instead_of, plan.reduced) == (other, "full", name, "")
        assert plan.runs == load_plan(other).runs
    words = ["--scale", "laptop", "--jobs", "0"]  # refused before anything starts
    assert main(["reproduce", "swd/fig3", *words]) == 2
    assert "--jobs must be in" in capsys.readouterr().err


def test_a_plan_that_stands_for_another_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in load_plan("lab/minatar").runs:
        write_planned(tmp_path / "runs", run, 10.0 + run.config.seed)
    flags = ["--scale", "laptop", "--out", str(tmp_path / "runs"), "--archives", str(tmp_path / "none")]
    assert main(["reproduce", "swd/fig3", *flags]) == 0
    said = capsys.readouterr().out
    first = "swd/fig3 has no smaller scale of its own: lab/minatar, which asks its question, is carried out instead."
    assert said.startswith(first)
    assert (tmp_path / "runs" / "report" / "lab-minatar-full" / "index.html").exists()
    assert main(["claims", "--out", str(tmp_path / "none"), "--archives", str(tmp_path / "none")]) == 0
    assert "at laptop scale: lab/minatar" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["swd/fig4", "swd/fig1", "swd/fig9", "swd/tab1", "swd/tab2", "swd/tab12"])
def test_a_plan_without_a_laptop_scale_names_what_there_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert scales_of(name) == ("full",)
    assert main(["reproduce", name, "--scale", "laptop"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--scale full" in said
    assert "lab/minatar" in said


def test_lab_is_reproduce(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (["lab", "priming"], ["reproduce", "lab/priming"]):
        assert main([*words, "--scale", "laptop"]) == 2
        said.append(capsys.readouterr().err.split(": ", 1)[1])
    assert said[0] == said[1]
    assert "lab/priming has no [laptop] part: run it at its full or quick scale" in said[0]
    assert main(["lab"]) == 0
    said = [capsys.readouterr().out]
    assert all(f"{name} " in said[0] for name in ("priming", "drift", "minatar", "recovery"))


def test_what_a_scale_may_name(tmp_path: Path) -> None:
    own = 'title = "x"\nagent = "td3"\nenvironments = ["Hopper-v5"]\nsteps = 9\nseeds = [1]\n'
    methods = "methods = { uniform = {} }\n"
    (tmp_path / "nobody.toml").write_text(f'{own}laptop = "nobody"\n{methods}')
    for scale in ("full", "laptop"):
        with pytest.raises(UsageError, match=r"line 6: laptop must be a table .* plan that is there, got 'nobody'"):
            load_plan(str(tmp_path / "nobody.toml"), scale)
    (tmp_path / "around.toml").write_text('title = "x"\nincludes = ["swd/fig3"]\n')
    with pytest.raises(UsageError, match="swd/fig3 has no laptop scale of its own to include: run lab/minatar"):
        load_plan(str(tmp_path / "around.toml"), "laptop")


TINY = {"steps": 260, "eval_every": 130, "eval_episodes": 1, "probe_every": 100, "learning_starts": 110}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("lab/horizon-priming", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.long) for name in ALONE if name != "lab/horizon-priming"),
    ],
)
def test_a_tiny_run_of_every_method(name: str, tmp_path: Path) -> None:
    """All methods of the plan, each in its own process, up to the page of its report."""
    data = tomllib.loads(papers_plans()[name].read_text())
    steps, settings = TINY["steps"], {key: value for key, value in TINY.items() if key != "steps"}
    if name.endswith("priming"):
        settings |= {"priming_updates": 100, "widths": [16]}
    methods = data["quick"].get("methods", data["methods"])
    for own in methods.values():
        own |= {"reset_at": [150]} if "reset_at" in own else {}
    data["quick"] |= {"steps": steps, "settings": settings, "methods": methods, "grid": {}, "claims": []}
    data["quick"]["settings"] |= {"utd": 1}
    plan = make_plan(name, data, "quick")
    assert len(plan.runs) == len(methods)
    outcome = sweep(plan, tmp_path / "runs", usable_cores(), None)
    assert not outcome.failed
    assert len(outcome.done) == len(plan.runs)
    page = report_plan(plan, [tmp_path / "runs"], tmp_path / "report").read_text()
    assert "it decides nothing" in page
