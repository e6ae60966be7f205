"""The example without a framework: it changes few lines, and still learns."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "cleanrl_td3.py"


def test_fewer_than_five_lines_are_ours() -> None:
    lines = EXAMPLE.read_text().splitlines()
    ours = [line for line in lines if "neoteny" in line or "sampler" in line]
    assert [line for line in lines if "# SWD" in line] == [line for line in ours if "pip install" not in line]
    assert len([line for line in lines if "# SWD" in line]) < 5


@pytest.mark.slow
def test_it_learns_pendulum(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("cleanrl_td3", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    returns = module.main(steps=8_001)
    assert np.mean(returns[:5]) < -1_000
    assert np.mean(returns[-8:]) > -400
    assert "step   8000  return of the last 5 episodes" in capsys.readouterr().out
