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
def test_a_flashbax_dqn_learns_cart_pole() -> None:
    lengths = example("flashbax_dqn").main()
    assert lengths[0] < 30
    assert sum(lengths[-5:]) / 5 > 100


@pytest.mark.parametrize(("framework", "missing"), [("torchrl", "torch"), ("flashbax", "flashbax")])
def test_a_missing_framework_is_one_sentence(framework: str, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import neoteny.integrations.{framework}"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert shown.splitlines()[-1] == (
        f"ImportError: neoteny.integrations.{framework} needs {missing}, which is not installed: "
        f"pip install 'neoteny[{framework}]'"
    )
