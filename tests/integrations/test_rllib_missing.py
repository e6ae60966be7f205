"""RLlib is not installed here: that is said in one sentence. Its tests are in tests/rllib, run by make test-rllib."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_a_missing_ray_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in [name for name in sys.modules if name.startswith("neoteny.integrations.rllib")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"needs ray.*, which is not installed: pip install '\.\[rllib\]'"):
        importlib.import_module("neoteny.integrations.rllib")
