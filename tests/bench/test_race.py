"""Races: what is said of speeds, and that contenders really train in turns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from neoteny.bench.race import Entry, race, ratio
from neoteny.cli import main


def test_the_interval_of_a_median_holds_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    for count in (6, 15, 40):
        held = 0
        for _ in range(2_000):
            speedup = ratio(np.exp(rng.normal(size=count)).tolist(), [1.0] * count)
            held += speedup.low <= 1.0 <= speedup.high
        assert held / 2_000 >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 2_000), count


def test_the_interval_is_the_narrowest_of_its_kind() -> None:
    """Of 15: between the 4th smallest and the 4th largest, since the law of signs leaves 3.5% outside."""
    speedup = ratio([float(x) for x in range(1, 16)], [1.0] * 15)
    assert (speedup.low, speedup.median, speedup.high) == (4.0, 8.0, 12.0)
    assert 2 * binom.cdf(3, 15, 0.5) <= 0.05 < 2 * binom.cdf(4, 15, 0.5)


def test_of_few_rounds_the_interval_is_all_of_them() -> None:
    speedup = ratio([1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    assert (speedup.low, speedup.median, speedup.high) == (1.0, 2.0, 4.0)


@pytest.mark.slow
def test_contenders_train_in_turns(tmp_path: Path) -> None:
    speeds = race({"neoteny": [Entry("neoteny")], "sb3": [Entry("sb3")]}, "hopper", 2, 0.5, tmp_path)
    assert all(len(taken) == 2 and min(taken) > 0 for taken in speeds.values())


@pytest.mark.slow
def test_a_step_is_looked_into() -> None:
    words = [sys.executable, "-m", "neoteny.bench.step", "hopper", "30"]
    completed = subprocess.run(words, capture_output=True, text=True, check=True)
    step = json.loads(completed.stdout)
    assert min(step["parts"].values()) >= 0, "the rest is what is left: no time may be counted twice"
    assert min(step["parts"][part] for part in ("acting", "simulator", "replay", "update", "logging")) > 0
    assert step["fraction"] == step["products_seconds"] / step["seconds"]


def test_a_missing_peer_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["bench", "train"]) == 2
    assert "pip install '.[bench]' in a clone of Neoteny" in capsys.readouterr().err


def test_rounds_must_be_positive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", "--rounds", "0"]) == 2
    assert "got 0" in capsys.readouterr().err
