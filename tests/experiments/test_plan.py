"""Plans: what they expand to, and that ours are what the paper and the specification say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import neoteny
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.experiments.cores import cgroup_quota, usable_cores
from neoteny.experiments.plan import load_plan, make_plan, papers_plans, scales_of
from neoteny.remedies import REMEDIES, ReDo, Reset, ShrinkPerturb
from neoteny.replay.registry import make_sampler
from neoteny.settings.config import TrainConfig

SMALL: dict[str, Any] = {
    "title": "Small",
    "agent": "td3",
    "environments": ["Pendulum-v1", "Hopper-v5"],
    "steps": 1_000,
    "seeds": [1, 2, 3],
    "settings": {"widths": [16], "eval_every": 500},
    "methods": {"uniform": {}, "swd": {"replay": "swd", "decay_steps": 300, "remedy": ["redo"]}},
}
EVERY = list(papers_plans())
WITH_LAPTOP = [name for name in EVERY if "laptop" in scales_of(name)]


def test_a_plan_expands_to_its_product() -> None:
    plan = make_plan("small", {**SMALL, "grid": {"utd": [1, 2]}})
    assert len(plan.runs) == 2 * 3 * 2 * 2
    assert {run.method for run in plan.runs} == {"uniform, utd 1", "uniform, utd 2", "swd, utd 1", "swd, utd 2"}
    one = next(run.config for run in plan.runs if run.method == "swd, utd 2" and run.config.seed == 3)
    assert (one.agent.utd, one.agent.widths, one.replay.decay_steps) == (2, (16,), 300)  # type: ignore[union-attr]
    assert (one.remedies, one.total_timesteps, one.threads) == ((ReDo(),), 1_000, 1)
    assert [run.config.seed for run in plan.runs] == [1] * 8 + [2] * 8 + [3] * 8  # seeds change slowest


def test_a_plan_lists_the_moments_of_resets() -> None:
    def of(**settings: Any) -> Any:
        return make_plan("small", {**SMALL, "methods": {"resets": {"remedy": ["reset"], **settings}}}).runs[0].config

    assert of(reset_at=[15_000, 5e4]).remedies == (Reset(at=(15_000, 50_000)),)
    assert of(reset_alpha=True).remedies == (Reset(alpha=True),)
    with pytest.raises(UsageError, match=r"reset_at must be a list of whole numbers, got 15000: write \[15000\]"):
        of(reset_at=15_000)
    with pytest.raises(UsageError, match=r"reset_at must be numbers of updates from 1 on.*, got 9 5"):
        of(reset_at=[9, 5])
    with pytest.raises(UsageError, match=r"reset_every 7 and reset_at 9 both say when to reset"):
        of(reset_at=[9], reset_every=7)


def test_an_id_is_of_the_whole_configuration() -> None:
    """So that a plan run twice does nothing, and a widened one runs only what is new."""
    plan = make_plan("small", SMALL)
    assert len({run.directory for run in plan.runs}) == len(plan.runs)
    assert [run.directory for run in make_plan("other name", SMALL).runs] == [run.directory for run in plan.runs]
    wider = make_plan("small", {**SMALL, "seeds": [1, 2, 3, 4]})
    assert {run.directory for run in plan.runs} < {run.directory for run in wider.runs}
    for change in ({"steps": 1_001}, {"settings": {"widths": [17], "eval_every": 500}}):
        assert not {run.directory for run in make_plan("small", {**SMALL, **change}).runs} & {
            run.directory for run in plan.runs
        }
    again = TrainConfig.from_json(json.loads(json.dumps(plan.runs[0].config.to_json())))
    assert again == plan.runs[0].config


def test_shards_share_the_runs_out() -> None:
    plan = make_plan("small", SMALL)
    parts = [plan.shard(index, 5) for index in range(1, 6)]
    assert sorted(str(run.directory) for part in parts for run in part.runs) == sorted(
        str(run.directory) for run in plan.runs
    )
    with pytest.raises(UsageError, match="got 6/5"):
        plan.shard(6, 5)


@pytest.mark.parametrize(("name", "scale"), [(name, scale) for name in EVERY for scale in scales_of(name)])
def test_our_plans_can_be_run(name: str, scale: str) -> None:
    plan = load_plan(name, scale)
    assert plan.title
    assert plan.paper
    assert bool(plan.reduced) == (scale != "full")
    for run in plan.runs:
        replay = run.config.replay  # it exists, and takes those numbers
        make_sampler(replay.replay, replay.replay_sampler, 80_000, replay.numbers())


def test_the_papers_plans_are_the_papers() -> None:
    rows = {f"fig{number}" for number in range(1, 11)} | {"tab1", "tab2", "tab12", "tab13"}
    assert rows == {name.removeprefix("swd/") for name in EVERY if name.startswith("swd/")}
    for name in EVERY:
        for run in load_plan(name).runs if not name.startswith("lab/") else ():
            length = {"td3": 1_000_000, "sac": 1_000_000, "ddqn": 10_000_000}[run.config.agent_name]
            assert run.config.total_timesteps == length
            assert run.config.seed in range(1, 6)
            if run.method == "swd":
                paper_t = 100_000 if run.config.agent_name == "td3" else 80_000
                assert (run.config.replay.decay_steps, run.config.replay.min_weight) == (paper_t, 0.1)
    assert {(r.config.replay.decay_steps, r.config.replay.min_weight) for r in load_plan("swd/tab12").runs} == {
        (t, w) for t in (20e3, 40e3, 60e3, 80e3, 100e3) for w in (0.02, 0.04, 0.06, 0.08, 0.1)
    }
    assert {r.config.agent.utd for r in load_plan("swd/fig7").runs} == {1, 2, 5}
    swd_sp = next(r.config for r in load_plan("swd/fig8").runs if r.method == "swd + s&p")
    assert (swd_sp.replay.replay, swd_sp.remedies) == ("swd", (ShrinkPerturb(),))


@pytest.mark.parametrize("name", WITH_LAPTOP)
def test_laptop_plans_carry_both_ts(name: str) -> None:
    """The paper's T, and T scaled as the paper's is to the length of its runs."""
    runs = [run.config for run in load_plan(name, "laptop").runs]
    used = {config.replay.decay_steps for config in runs if config.replay.replay == "swd"}
    assert {config.agent_name for config in runs} == {"td3"}
    assert used == {100_000, 100_000 * runs[0].total_timesteps / 1_000_000}


@pytest.mark.parametrize(("scale", "decay_steps"), [("full", 100_000), ("laptop", 20_000)])
def test_the_capacities_of_the_controls(scale: str, decay_steps: int) -> None:
    """Uniform replay with SWD's mean age, and with its share of the newest, from what `describe` says."""
    runs = {run.method: run.config for run in load_plan("controls/capacity", scale).runs}
    full = min(1_000_000, runs["uniform"].total_timesteps)
    swd = neoteny.LinearDecay(decay_steps).describe(capacity=full)
    for method, wanted, got in (
        ("uniform, same mean age", swd.mean_age, lambda d: d.mean_age),
        ("uniform, same share of the newest", swd.newest_share / full, lambda d: d.newest_share / d.capacity),
    ):
        capacity = runs[method].replay.capacity
        assert got(neoteny.Uniform().describe(capacity=capacity)) == pytest.approx(wanted, rel=1e-4)


def test_the_geometric_law_of_the_horizon_plan_is_as_old_as_swd_in_the_middle_of_the_run() -> None:
    runs = {run.method: run.config.replay for run in load_plan("controls/horizon").runs}
    swd, geometric = runs["swd, utd 1"], runs["truncated geometric, utd 4"]
    assert isinstance(swd.decay_steps, int)
    like = neoteny.LinearDecay(swd.decay_steps, swd.min_weight or 0)
    matched = neoteny.match(neoteny.TruncatedGeometric(), like=like, by="mean_age", capacity=500_000)
    assert geometric.mean_age == round(matched.mean_age)
    assert {run.config.agent.utd for run in load_plan("controls/horizon").runs} == {1, 4}


def test_the_example_that_asks_which_t_compares_auto_with_every_fixed_one() -> None:
    plan = load_plan(str(Path(__file__).parents[2] / "examples" / "which_t.toml"))
    fixed = {run.config.replay.decay_steps for run in plan.runs if run.method != "auto"}
    assert fixed == {1_000, 2_000, 5_000, 10_000}
    assert {claim.baseline for claim in plan.claims or ()} == {run.method for run in plan.runs} - {"auto"}
    assert {run.config.seed for run in plan.runs} == set(range(1, 11))
    assert len(plan.runs) == 2 * 5 * 10


def test_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("title = ")
    (tmp_path / "both.toml").write_text('title = "x"\nincludes = ["swd/fig2"]\nsteps = 3\n')
    for message, attempt in {
        "there is no plan 'nothing'": lambda: load_plan("nothing"),
        "bad.toml is not TOML": lambda: load_plan(str(tmp_path / "bad.toml")),
        "it also has steps": lambda: load_plan(str(tmp_path / "both.toml")),
        "has colour, which no plan has": lambda: make_plan("p", {**SMALL, "colour": 3}),
        "seeds is empty": lambda: make_plan("p", {**SMALL, "seeds": []}),
        "no \\[laptop\\] part": lambda: make_plan("p", SMALL, "laptop"),
        "there is no setting methods.swd.widht": lambda: make_plan("p", {**SMALL, "methods": {"swd": {"widht": 3}}}),
        "the methods a and b have the same": lambda: make_plan("p", {**SMALL, "methods": {"a": {}, "b": {}}}),
        "claims something of 'sdw'; its methods are uniform, swd": lambda: make_plan(
            "p", {**SMALL, "claims": [{"method": "sdw", "baseline": "uniform"}]}
        ),
        "a claim has method and baseline, and may have": lambda: make_plan(
            "p", {**SMALL, "claims": [{"method": "swd", "efect": 0.1}]}
        ),
        "agent must be one of": lambda: make_plan("p", {**SMALL, "agent": "ppo"}),
    }.items():
        with pytest.raises(UsageError, match=message):
            attempt()


def test_cores_are_those_that_may_be_used(tmp_path: Path) -> None:
    assert 1 <= len(usable_cores()) <= len(os.sched_getaffinity(0))
    for text, cores in (("150000 100000\n", 1), ("400000 100000\n", 4), ("max 100000\n", None)):
        (tmp_path / "cpu.max").write_text(text)
        assert cgroup_quota((str(tmp_path / "cpu.max"),)) == cores
    assert cgroup_quota((str(tmp_path / "none"),)) is None


def test_claims_and_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--out", str(tmp_path), "--archives", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in EVERY)
    assert "runs done: 0 of 75 at full scale, 0 of 40 at laptop scale" in said
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    for name in ("td3", "swd-per", "shrink-perturb", "trainability", "ALE/Breakout-v5", "controls/window"):
        assert name in said


def test_the_programme_is_made_of_the_papers_runs() -> None:
    """So that its runs count for swd/fig2, and each part goes on where the one before ended."""
    whole = {run.directory for run in load_plan("swd/fig2").runs}
    three, five, per = (
        [run.directory for run in load_plan(f"programme/fig2-{part}").runs] for part in ("three", "five", "per")
    )
    assert (len(three), len(five), len(per)) == (30, 50, 75)
    assert set(three) < set(five) < set(per) == whole
    assert [run.config.seed for run in load_plan("programme/fig2-three").runs] == sorted([1, 2, 3, 4, 5] * 6)
    assert all(run.config.keep_checkpoints == 4 for run in load_plan("programme/fig2-per").runs)


def test_a_method_may_start_from_a_preset_of_its_own() -> None:
    plan = load_plan("controls/remedies")
    configs = {run.method: run.config for run in plan.runs if run.config.seed == 1}
    assert configs["simbav2"].agent.network == "simbav2"
    assert configs["fog"].replay.replay == "geometric"
    assert [remedy.name for remedy in configs["fog"].remedies] == ["growth"]
    assert configs["uniform"].agent.network == "simba"
    assert {config.total_timesteps for config in configs.values()} == {1_000_000}


def test_the_plan_of_remedies_has_each_alone_and_with_swd() -> None:
    methods = {run.method for run in load_plan("controls/remedies").runs}
    for name in REMEDIES:
        if name != "growth":  # which the preset fog has
            assert {name, f"swd + {name}"} <= methods
