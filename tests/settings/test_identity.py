"""Equal configurations have equal ids, however they were written; other configurations have others."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import gymnasium as gym
import pytest

import neoteny
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.experiments.plan import make_plan
from neoteny.remedies import Injection, ReDo, Reset
from neoteny.runs.records import read_config
from neoteny.runs.run import Run, source
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.settings.identity import WITHOUT_EFFECT, canonical, describe_own
from neoteny.training import start

SWD = ReplayConfig("swd", decay_steps=100_000, min_weight=0.1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TrainConfig("Hopper-v5", TD3Config(utd=1)), TrainConfig("Hopper-v5", TD3Config(utd=1.0))),
        (TrainConfig("Hopper-v5", replay=ReplayConfig("swd")), TrainConfig("Hopper-v5", replay=SWD)),
        (
            TrainConfig("Hopper-v5", replay=ReplayConfig("swd", decay_steps=80_000)),
            TrainConfig("Hopper-v5", replay=ReplayConfig("swd", decay_steps=80_000.0)),
        ),
        (TrainConfig("Hopper-v5"), TrainConfig("Hopper-v5", threads=1, total_timesteps=1_000_000, eval_every=10_000)),
        (TrainConfig("Hopper-v5"), TrainConfig("Hopper-v5", action_repeat=1)),
        (
            TrainConfig("dm_control/dog-run-v0", SACConfig(), threads=1),
            TrainConfig("dm_control/dog-run-v0", SACConfig(), threads=1, action_repeat=2),
        ),
        (
            TrainConfig("Hopper-v5", remedies=(ReDo(),)),
            TrainConfig("Hopper-v5", remedies=(ReDo(tau=0.025),)),
        ),
        (
            TrainConfig("Hopper-v5", remedies=(Injection(),)),
            TrainConfig("Hopper-v5", remedies=(Injection(at=487_500),)),
        ),
        (TrainConfig("Hopper-v5"), TrainConfig("Hopper-v5", TD3Config(widths=[256, 128]))),  # type: ignore[arg-type]
        (
            TrainConfig("Hopper-v5", replay=ReplayConfig("swd-per")),
            TrainConfig("Hopper-v5", replay=ReplayConfig("swd-per", per_alpha=0.6, per_beta=0.4, per_beta_step=1e-6)),
        ),
        (
            TrainConfig("Hopper-v5", replay=ReplayConfig("per")),
            TrainConfig("Hopper-v5", replay=ReplayConfig("per", per_alpha=0.6)),
        ),
        (
            TrainConfig("Hopper-v5"),
            TrainConfig("Hopper-v5", log_every=7, checkpoint_every=30, keep_checkpoints=4, wandb=True, device="cpu"),
        ),
    ],
)
def test_equal_configurations_have_equal_ids(one: TrainConfig, other: TrainConfig) -> None:
    assert canonical(one) == canonical(other)
    assert one.run_id() == other.run_id()


def test_every_setting_that_changes_the_result_changes_the_id() -> None:
    plain = TrainConfig("Hopper-v5")
    others = [
        TrainConfig("Ant-v5"),
        TrainConfig("Hopper-v5", SACConfig(), threads=1),
        TrainConfig("Hopper-v5", DDQNConfig(), threads=1, total_timesteps=1_000_000),
        TrainConfig("Hopper-v5", threads=2),
        *(TrainConfig("Hopper-v5", **{name: value}) for name, value in OTHER.items()),
        *(TrainConfig("Hopper-v5", TD3Config(**{name: value})) for name, value in OTHER_TD3.items()),
        TrainConfig("Hopper-v5", replay=ReplayConfig("swd")),
        TrainConfig("Hopper-v5", replay=ReplayConfig("swd", decay_steps=99_999)),
        TrainConfig("Hopper-v5", replay=ReplayConfig("swd", min_weight=0.2)),
        TrainConfig("Hopper-v5", replay=ReplayConfig("swd", replay_sampler="bucketed")),
        TrainConfig("Hopper-v5", replay=ReplayConfig(capacity=10)),
        TrainConfig("Hopper-v5", replay=ReplayConfig(n_step=3)),
        TrainConfig("Hopper-v5", plasticity=PlasticityConfig(probe_every=0)),
        TrainConfig("Hopper-v5", remedies=(ReDo(),)),
    ]
    ids = [config.run_id() for config in (plain, *others)]
    assert len(set(ids)) == len(ids)


OTHER: dict[str, Any] = {
    "total_timesteps": 999_999,
    "seed": 2,
    "num_envs": 2,
    "priming_updates": 100,
    "action_repeat": 2,
    "eval_every": 5_000,
    "eval_episodes": 3,
    "on_nan": "skip",
}
OTHER_TD3: dict[str, Any] = {
    "widths": (256,),
    "actor_lr": 1e-3,
    "gamma": 0.9,
    "batch_size": 64,
    "learning_starts": 1_000,
    "utd": 2,
}


def test_a_setting_that_is_added_later_changes_no_id() -> None:
    """Ids know a setting only if it is not at its default, so a new one at its default is not seen."""
    settings = canonical(TrainConfig("Hopper-v5", replay=SWD))
    assert settings == {
        "env": "Hopper-v5",
        "seed": 1,
        "total_timesteps": 1_000_000,
        "agent": "td3",
        "replay": "swd",
    }
    assert TrainConfig("Hopper-v5", replay=SWD).run_id() == "172d11c4"  # as in the results that are in the repository
    assert set(WITHOUT_EFFECT) <= {field.name for field in dataclasses.fields(TrainConfig)}


@pytest.mark.parametrize(
    ("remedy", "recorded"),
    [
        (Reset(), "96e57956"),
        (Reset(every=200_000), "96e57956"),
        (Reset(every=50_000), "15d3cf93"),
        (Reset(from_="head"), "773abdd1"),
        (Reset(7, "layer_1"), "df1fbfaa"),
    ],
)
def test_resets_keep_the_ids_that_they_had_before_moments_could_be_listed(remedy: Reset, recorded: str) -> None:
    assert TrainConfig("Hopper-v5", remedies=(remedy,)).run_id() == recorded
    ids = {
        TrainConfig("Hopper-v5", remedies=(other,)).run_id()
        for other in (Reset(), Reset(at=(200_000,)), Reset(at=(200_000, 400_000)), Reset(alpha=True))
    }
    assert len(ids) == 4
    written = TrainConfig("Hopper-v5").to_json() | {"remedies": {"reset": {"every": 200_000, "from_": None}}}
    assert TrainConfig.from_json(written).remedies == (Reset(),)  # as a run recorded it then


def test_command_line_plan_and_python_agree(tmp_path: Path, monkeypatch: Any) -> None:
    seen = []
    monkeypatch.setattr(start, "train", lambda config, **_: seen.append(config) or tmp_path)
    words = "train td3 --env Hopper-v5 --replay swd --decay-steps 80000 --utd 1 --steps 5000 --log-every 50"
    assert main(words.split()) == 0
    plan = make_plan(
        "p",
        {
            "title": "t",
            "agent": "td3",
            "environments": ["Hopper-v5"],
            "steps": 5_000,
            "seeds": [1],
            "methods": {"swd": {"replay": "swd", "decay_steps": 80_000, "utd": 1.0}},
        },
    )
    python = TrainConfig("Hopper-v5", TD3Config(), ReplayConfig("swd", decay_steps=8e4), total_timesteps=5_000)
    assert seen[0].run_id() == plan.runs[0].config.run_id() == python.run_id()


def test_names_of_directories_are_safe() -> None:
    config = TrainConfig("my.module:Mine-v0", replay=ReplayConfig("pkg.mod:Theirs"))
    assert config.default_directory().parts[:3] == ("runs", "my.module-Mine-v0", "td3-pkg.mod-Theirs")
    assert TrainConfig("ALE/Pong-v5", DDQNConfig()).default_directory().parts[1] == "ALE-Pong-v5"


class Wide(nn.Module):
    width: int = 7
    act: Any = nn.relu

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return self.act(nn.Dense(self.width)(x))


def test_ids_know_a_network_and_an_environment_of_ones_own() -> None:
    config = TrainConfig("Mine")

    def pendulum() -> gym.Env:
        return gym.make("Pendulum-v1")

    def heavy() -> gym.Env:
        return gym.make("Pendulum-v1", g=20.0)

    parts = [
        {},
        *(describe_own(make, make(), None) for make in (pendulum, heavy)),
        *(describe_own(None, pendulum(), network) for network in (Wide(), Wide(8), Wide(act=nn.tanh))),
    ]
    ids = [config.run_id(own) for own in parts]
    assert len(set(ids)) == len(ids)
    assert config.run_id(describe_own(heavy, heavy(), Wide())) == config.run_id(describe_own(heavy, heavy(), Wide()))
    assert "0x" not in json.dumps(parts)


def short(**options: Any) -> TrainConfig:
    return TrainConfig(
        "Pendulum-v1",
        TD3Config((8,), batch_size=8, learning_starts=20),
        **{
            "replay": ReplayConfig(capacity=100),
            "plasticity": PlasticityConfig(probe_every=0),
            "total_timesteps": 30,
            "eval_every": 0,
            **options,
        },
    )


def test_a_script_that_is_run_twice_gets_a_free_directory(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    first = neoteny.train(short(), quiet=True)
    second = neoteny.train(short(), quiet=True)
    assert second == first.with_name(first.name + "-2")
    said = capsys.readouterr().err
    assert f"{first} already contains a run of this configuration, so this one is in {second}." in said
    assert neoteny.train(short(), quiet=True, overwrite=True) == first
    assert sorted(path.name for path in first.parent.iterdir()) == [first.name, second.name]


def test_two_environments_of_ones_own_have_directories_of_their_own(tmp_path: Path, monkeypatch: Any) -> None:
    class Heavy(gym.envs.classic_control.PendulumEnv):
        pass

    def light() -> gym.Env:
        return gym.wrappers.TimeLimit(gym.envs.classic_control.PendulumEnv(), 20)

    def heavy() -> gym.Env:
        return gym.wrappers.TimeLimit(Heavy(), 20)

    def strong() -> gym.Env:
        return gym.wrappers.TimeLimit(gym.envs.classic_control.PendulumEnv(g=20.0), 20)

    monkeypatch.chdir(tmp_path)
    runs = [neoteny.train(short(), make_env=make, quiet=True) for make in (light, heavy, strong)]
    assert len({run.name for run in runs}) == 3
    assert not any(run.name.endswith("-2") for run in runs)


def test_lambdas_and_partials_are_told_apart_by_what_they_contain() -> None:
    def scaled(by: float) -> gym.Env:
        return gym.wrappers.TransformReward(gym.make("Pendulum-v1"), lambda reward: by * reward)

    def enclosing(by: float) -> Any:
        return lambda: scaled(by)

    makes = [
        lambda: scaled(1.0),
        lambda: scaled(2.0),
        functools.partial(scaled, 1.0),
        functools.partial(scaled, 2.0),
        enclosing(3.0),
        enclosing(4.0),
    ]
    ids = [TrainConfig("Mine").run_id(describe_own(make, make(), None)) for make in makes]
    assert len(set(ids)) == len(ids)


def test_overwrite_replaces_a_run_and_nothing_else(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    words = "train td3 --env Pendulum-v1 --steps 30 --learning-starts 20 --batch-size 8 --widths 8 --probe-every 0"
    words = [*words.split(), "--eval-every", "0", "--out", str(run)]
    assert main(words) == 0
    (run / "left-over").touch()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "resume it with neoteny resume" in said
    assert "--out (out= in Python)" in said
    assert "--overwrite (overwrite=True in Python)" in said
    assert (run / "left-over").exists()
    assert main([*words, "--seed", "2", "--overwrite"]) == 0
    assert not (run / "left-over").exists()
    assert read_config(run)[0].seed == 2
    strange = tmp_path / "thesis"
    strange.mkdir()
    (strange / "chapter.tex").write_text("years of work")
    assert main([*words[:-1], str(strange), "--overwrite"]) == 2
    assert "contains other files and no run" in capsys.readouterr().err
    assert (strange / "chapter.tex").read_text() == "years of work"


def test_a_bad_setting_loses_no_run_that_was_to_be_overwritten(tmp_path: Path) -> None:
    run = neoteny.train(short(), out=tmp_path / "run", quiet=True)
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(UsageError, match="there is no replay"):
        neoteny.train(short(replay=ReplayConfig("nothing")), out=run, overwrite=True, quiet=True)
    assert (run / "metrics.jsonl").read_bytes() == before


def test_a_run_records_the_commit_it_was_made_by(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", short(), {})
    run.close()
    recorded = read_config(tmp_path / "run")[1]["source"]
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    if said.returncode == 0 and Path(neoteny.__file__).is_relative_to(Path(__file__).parents[2]):
        assert recorded["commit"] == said.stdout.strip()
    assert recorded["processor"]
    assert recorded == source()


def test_installed_inside_somebody_elses_checkout_there_is_no_commit(tmp_path: Path) -> None:
    import shutil

    site = tmp_path / "project" / "site-packages"
    shutil.copytree(Path(neoteny.__file__).parent, site / "neoteny", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "-q", str(tmp_path / "project")], check=True)
    code = "from neoteny.runs.run import source; print(source()['commit'])"
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=site,
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert said.stdout.strip() == "None", said.stderr
