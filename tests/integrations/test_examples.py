"""The frameworks' own agents learn with our replay in their buffers: the examples, run. And without the frameworks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_torchrls_sac_learns_pendulum() -> None:
    returns = example("torchrl_sac").main(frames=4_000)
    assert returns[0] < -900
    assert returns[-1] > -400


@pytest.mark.slow
@pytest.mark.parametrize("decay_steps", [None, 5_000])
def test_sb3s_dqn_learns_cart_pole_with_priorities(decay_steps: int | None) -> None:
    assert example("sb3_per").main(decay_steps=decay_steps) > 100


@pytest.mark.slow
def test_a_flashbax_dqn_learns_cart_pole() -> None:
    lengths = example("flashbax_dqn").main()
    assert lengths[0] < 30
    assert sum(lengths[-5:]) / 5 > 100


def test_in_a_loop_of_ones_own_fewer_than_five_lines_are_ours() -> None:
    lines = (EXAMPLES / "cleanrl_td3.py").read_text().splitlines()
    ours = [line for line in lines if ("neoteny" in line or "sampler" in line) and "pip install" not in line]
    assert [line for line in lines if "# SWD" in line] == ours
    assert len(ours) < 5


@pytest.mark.slow
def test_a_loop_of_ones_own_learns_pendulum(capsys: pytest.CaptureFixture[str]) -> None:
    returns = example("cleanrl_td3").main(steps=8_001)
    assert sum(returns[:5]) / 5 < -1_000
    assert sum(returns[-8:]) / 8 > -400
    assert "step   8000  return of the last 5 episodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("framework", "missing"), [("torchrl", "torch"), ("flashbax", "flashbax"), ("sb3", "stable_baselines3")]
)
def test_a_missing_framework_is_one_sentence(framework: str, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import neoteny.integrations.{framework}"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert shown.splitlines()[-1] == (
        f"ImportError: neoteny.integrations.{framework} needs {missing}, which is not installed: "
        f"pip install '.[{framework}]' in a clone of Neoteny"
    )
