"""The command line and the wheel, as a newcomer meets them."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

import neoteny
from neoteny.agents.configs import AGENTS
from neoteny.bench import integrations
from neoteny.bench.replay import measure_peers
from neoteny.cli import main
from neoteny.commands import BENCHMARKS, COMMANDS

ROOT = Path(__file__).parents[2]
NO_MATPLOTLIB = (
    "neoteny demo laws: drawing needs matplotlib, which is not installed: "
    "pip install '.[report]' in a clone of Neoteny\n"
)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == main(["help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_an_unknown_command_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fly"]) == 2
    assert capsys.readouterr().err.startswith(
        "neoteny: there is no command 'fly'; the commands are: demo, demo laws, train"
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == main(["version"]) == 0
    assert capsys.readouterr().out == f"neoteny {neoteny.__version__}\n" * 2


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == main(["help", "train"]) == 0
    shown = capsys.readouterr().out
    first, second = shown[: len(shown) // 2], shown[len(shown) // 2 :]
    assert first == second
    assert all(f"  {agent} " in first for agent in AGENTS)
    assert "usage: neoteny train AGENT --env ID" in first
    with pytest.raises(SystemExit) as left:
        main(["help", "inspect"])
    assert left.value.code == 0
    assert "usage: neoteny inspect" in capsys.readouterr().out


def test_bench_lists_the_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == main(["bench", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(shown.count(about) == 2 for about in BENCHMARKS.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian td3", "neoteny: there is no command 'trian'; did you mean train?"),
        ("help trian", "neoteny help: there is no command 'trian'; did you mean train?"),
        ("bench repaly", "neoteny bench: there is no benchmark 'repaly'; did you mean replay?"),
        ("bench fly", "neoteny bench: there is no benchmark 'fly'; the benchmarks are: train, start"),
        ("train tdd3", "one of td3, sac, ddqn: neoteny train td3 --env Hopper-v5; did you mean td3?"),
        ("evaluate run --epsiodes 3", "neoteny evaluate: there is no argument --epsiodes; did you mean --episodes?"),
        ("evaluate run --episodes 1.5", "neoteny evaluate: argument --episodes: a whole number is needed"),
        ("sweep plan.toml --dry-rum", "neoteny sweep: there is no argument --dry-rum; did you mean --dry-run?"),
    ],
)
def test_what_was_meant(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["help"], ["version"], ["bench"], ["train", "--help"], ["trian"]])
def test_what_needs_no_jax_loads_none(words: list[str]) -> None:
    code = f"import sys; from neoteny.cli import main; main({words!r}); print('\\n', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "numpy" in loaded
    assert not loaded & {"jax", "flax", "tyro", "gymnasium", "rich", "matplotlib"}


def test_the_laws_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "new" / "demo.png"
    assert main(["demo", "laws", "--out", str(picture), "--capacity", "300000", "--draws", "20000"]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "LinearDecay" in capsys.readouterr().out


def test_without_matplotlib_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert (main(["demo", "laws"]), capsys.readouterr().err) == (2, NO_MATPLOTLIB)


def test_bench_replay_measures_every_sampler(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    small = ["--sizes", "10000", "--rounds", "2", "--frames", "500"]
    command = [sys.executable, "-m", "neoteny.bench", "replay", *small, "--json", str(file)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    figures = json.loads(file.read_text())
    names = {"uniform", "SWD exact", "SWD bucketed (paper)", "SWD reference (Alg. 1)", "PER", "PER x SWD"}
    assert {row["sampler"] for row in figures["rows"]} >= names
    assert all(row["sample_us"] > 0 and row["sampler"] in shown for row in figures["rows"])
    assert figures["frames"]["sample_us"] > 0


def test_bench_measures_peers_that_are_installed() -> None:
    rows = {row.sampler: row.sample_us for row in measure_peers(2_000, rounds=1)}
    assert rows["cpprb uniform"] > 0
    assert rows["cpprb PER"] > 0


def test_bench_integrations_measures_every_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both samples of each are drawn; the times are made up, and what is said of them follows."""

    def made_up(cases: dict[str, Any], rounds: int, seconds: float) -> dict[str, list[float]]:
        for case in cases.values():
            case()
        return {"uniform": [10.0, 10.0, 20.0], "aged": [10.0, 15.0, 40.0]}

    monkeypatch.setattr(integrations, "each_round", made_up)
    file = tmp_path / "bench.json"
    assert main(["bench", "integrations", "--size", "2000", "--rounds", "3", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    shown = capsys.readouterr().out
    assert [row["framework"] for row in rows] == list(integrations.FRAMEWORKS)
    assert [(row["uniform_us"], row["aged_us"], row["ratio"]) for row in rows] == [(10.0, 15.0, 1.5)] * len(rows)
    assert all(row["framework"] in shown for row in rows)


def test_bench_integrations_names_what_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "neoteny.integrations.flashbax", None)
    assert main(["bench", "integrations", "--size", "2000", "--rounds", "1", "--framework", "flashbax"]) == 0
    assert "flashbax            not measured: " in capsys.readouterr().out


def test_bench_says_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "replay", "--sizes", "100000000000", "--rounds", "1", "--frames", "0"]) == 0
    assert "not measured: a buffer of 100,000,000,000 transitions" in capsys.readouterr().out


@pytest.mark.slow
def test_the_wheel_alone_brings_numpy_and_draws(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, capture_output=True)
    listed = subprocess.run([python, "-m", "pip", "list", "--format", "json"], check=True, capture_output=True).stdout
    assert {package["name"] for package in json.loads(listed)} - {"pip", "setuptools"} == {"neoteny", "numpy"}
    draw = (
        "import numpy as np, neoteny; "
        "sampler = neoteny.AgeWeightedSampler(neoteny.LinearDecay(decay_steps=80_000, min_weight=0.1)); "
        "ring = dict(num_stored=900, head=900, capacity=1000, num_envs=1); "
        "slots = sampler.slots(np.random.default_rng(0), batch_size=256, **ring); "
        "print(slots.dtype, slots.shape)"
    )
    run = subprocess.run([python, "-c", draw], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert run.stdout.strip() == "int64 (256,)"
    missing = subprocess.run([tmp_path / "empty" / "bin" / "neoteny", "demo", "laws"], capture_output=True, text=True)
    assert (missing.returncode, missing.stderr) == (2, NO_MATPLOTLIB)
