"""The frameworks' own agents learn with our replay in their buffers: the examples, run."""

from __future__ import annotations

import importlib.util
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
