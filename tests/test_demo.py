"""The demo: its world changes when it should, and a short one ends in a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from neoteny.cli import main
from neoteny.demo.drift import fresh_share
from neoteny.demo.world import GRAVITIES, ID, PERIOD


def test_gravity_changes_every_period() -> None:
    """Beside plain pendulums made with that gravity."""
    world: Any = gym.make(ID).unwrapped
    world.reset(seed=3)
    for gravity in (*GRAVITIES, GRAVITIES[0]):
        twin: Any = gym.make("Pendulum-v1", g=gravity).unwrapped
        twin.state = world.state
        for step in range(PERIOD):
            action = np.array([1.5 * np.sin(step)])
            obs, reward, *_ = world.step(action)
            expected, expected_reward, *_ = twin.step(action)
            assert reward == expected_reward
            np.testing.assert_array_equal(obs, expected)


def test_the_share_of_fresh_data_by_hand() -> None:
    at, uniform = fresh_share("uniform", 3 * PERIOD)
    assert uniform[at == 2 * PERIOD][0] == pytest.approx(0.5)
    assert uniform[at == PERIOD + 250][0] == pytest.approx(250 / (PERIOD + 250))
    _, weighted = fresh_share("swd", 3 * PERIOD)
    assert (weighted[at > PERIOD] >= uniform[at > PERIOD]).all()


@pytest.mark.slow
def test_a_short_demo_ends_in_a_picture_and_a_page(tmp_path: Path, capsys: Any) -> None:
    assert main(["demo", "--out", str(tmp_path), "--steps", str(2 * PERIOD), "--seeds", "1"]) == 0
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "demo-runs").rglob("td3-swd/1-*/DONE"))) == 1
    page = (tmp_path / "report" / "index.html").read_text()
    assert "swd against uniform" in page
    assert "A demonstration: a pendulum, 12,000 steps, 1 seed, gravity" in page
    shown = capsys.readouterr().out
    assert "Mean return after the first change" in shown
    assert main(["demo", "--steps", "10"]) == 2


def test_a_directory_of_something_else_is_refused(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "thesis.tex").touch()
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "contains something that is no demo" in capsys.readouterr().err
