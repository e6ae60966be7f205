"""Seeds: whole numbers of 32 bits, since JAX forgets what is above; any other is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import neoteny
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.training.config import TrainConfig

WRONG = [-1, 2**32, 2**32 + 1, 10**20, 1.5, True, "1", None]


@pytest.mark.parametrize("seed", WRONG)
def test_a_seed_that_jax_would_not_tell_from_another_is_refused(seed: Any) -> None:
    with pytest.raises(UsageError, match=f"--seed must be a whole number from 0 to 4294967295, got {seed}"):
        TrainConfig("Pendulum-v1", seed=seed)


def test_every_seed_that_is_taken_has_a_key_of_its_own() -> None:
    """And the id that it always had."""
    seeds = [0, 1, 2**31 - 1, 2**31, 2**32 - 1]
    keys = {tuple(np.asarray(jax.random.key_data(jax.random.key(seed))).tolist()) for seed in seeds}
    assert len(keys) == len(seeds)
    assert TrainConfig("Pendulum-v1", seed=1).run_id() == TrainConfig("Pendulum-v1", seed=np.int64(1)).run_id()
    assert type(TrainConfig("Pendulum-v1", seed=np.int64(1)).seed) is int


@pytest.mark.parametrize("seed", ["-1", "4294967296", "1e20"])
@pytest.mark.parametrize(
    "command",
    ["train td3 --env Pendulum-v1 --steps 5 --out RUN --seed", "evaluate RUN --seed", "evaluate RUN --video --seed"],
)
def test_the_command_line_says_so(command: str, seed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(tmp_path) if word == "RUN" else word for word in command.split()]
    assert main([*words, seed]) == 2
    said = capsys.readouterr().err
    assert f"--seed must be a whole number from 0 to 4294967295, got {int(float(seed))}" in said
    assert len(said.splitlines()) == 1


def test_a_policy_is_seeded_alike(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--seed must be a whole number from 0 to 4294967295, got -1"):
        neoteny.load_policy(tmp_path, seed=-1)
