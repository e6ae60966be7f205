"""A damaged policy is refused in one sentence; one from before there was a checksum is loaded with a warning."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import damaging
import neoteny
from damaged_runs import edit, said_of, train_small
from neoteny.cli import main
from neoteny.runs.files import decode, digest, encode


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_small(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def change_policy(run: Path, change: Callable[[dict[str, Any]], None], seal: bool) -> None:
    """Change what is in a policy's file, with a digest that fits or without."""
    path = run / "policy" / "policy.npz"
    saved = decode(path.read_bytes())
    change(saved["policy"])
    path.write_bytes(encode({**saved, **({"digest": digest(saved["policy"])} if seal else {})}))


def raise_bound(policy: dict[str, Any]) -> None:
    policy["problem"]["action_high"] = [9.0]


def without_a_number(policy: dict[str, Any]) -> None:
    policy["leaves"][0] = np.full_like(policy["leaves"][0], np.nan)


def without_a_layer(policy: dict[str, Any]) -> None:
    policy["leaves"].pop()


def of_another_seed(policy: dict[str, Any]) -> None:
    policy["config"]["seed"] = 7


def of_another_shape(policy: dict[str, Any]) -> None:
    policy["leaves"][0] = policy["leaves"][0][:-1]


@pytest.mark.parametrize(
    ("change", "seal", "message"),
    [
        (of_another_seed, True, "is the policy of another run: there seed is 7, and in this run it is 1"),
        (raise_bound, False, "policy.npz is damaged: its checksum does not match"),
        (raise_bound, True, "is for another environment: its action_high is [9.], and not [2.]"),
        (without_a_number, False, "policy.npz is damaged: its checksum does not match"),
        (without_a_number, True, "is damaged: it has weights that are not finite"),
        (without_a_layer, True, "does not fit the run's config.json"),
        (of_another_shape, True, "does not fit the run's config.json"),
    ],
)
def test_a_policy_that_was_changed(change: Any, seal: bool, message: str, run: Path, capsys: Any) -> None:
    change_policy(run, change, seal)
    status, _, said = said_of(capsys, "evaluate", str(run), "--episodes", "1")
    assert status == 2
    assert message in said


def as_before_checksums(run: Path) -> tuple[Path, Path]:
    """Turn the policy into the two files that it was before."""
    path = run / "policy" / "policy.npz"
    policy = decode(path.read_bytes())["policy"]
    path.unlink()
    (path.parent / "problem.json").write_text(json.dumps(policy["problem"]) + "\n")
    np.savez(path.parent / "params.npz", **{f"leaf_{index}": leaf for index, leaf in enumerate(policy["leaves"])})
    return path.parent / "problem.json", path.parent / "params.npz"


def test_a_policy_from_before_checksums_is_loaded_with_a_warning(run: Path, capsys: Any) -> None:
    obs = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]], np.float32)
    before = neoteny.load_policy(run)(obs)
    returns = said_of(capsys, "evaluate", str(run), "--episodes", "1")[1]
    facts, _ = as_before_checksums(run)
    with pytest.warns(UserWarning, match="was written before policies had a checksum"):
        assert (neoteny.load_policy(run)(obs) == before).all()
    status, out, said = said_of(capsys, "evaluate", str(run), "--episodes", "1")
    assert (status, out) == (0, returns)
    assert said.count("\n") == 1
    assert "was written before policies had a checksum" in said
    edit(facts, '"action_high": [2.0]', '"action_high": [9.0]')
    assert main(["evaluate", str(run), "--episodes", "1"]) == 2
    assert "is for another environment: its action_high is [9.], and not [2.]" in capsys.readouterr().err
    neoteny.resume(run, steps=320, quiet=True)
    assert sorted(path.name for path in (run / "policy").iterdir()) == ["best.npz", "policy.npz"]


@pytest.mark.parametrize("old", [False, True])
def test_mutations_of_policies(old: bool, run: Path, tmp_path: Path, capsys: Any) -> None:
    paths = as_before_checksums(run) if old else (run / "policy" / "policy.npz",)
    right = said_of(capsys, "evaluate", str(run), "--episodes", "1")[1]
    whole = Path(shutil.copytree(run / "policy", tmp_path / "whole"))
    for path in paths:
        for number, mutation in enumerate(damaging.TEXT if path.suffix == ".json" else damaging.ANY):
            shutil.rmtree(run / "policy")
            shutil.copytree(whole, run / "policy")
            mutation(path, random.Random(f"{path.name} {number}"))
            capsys.readouterr()
            status, out = main(["evaluate", str(run), "--episodes", "1"]), capsys.readouterr().out
            assert status == 2 or (status == 0 and (out == right or old)), mutation.__name__
