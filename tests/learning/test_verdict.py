"""Runs that learn stay trainable by the measure, over 5 seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

import neoteny
from neoteny.agents.configs import TD3Config
from neoteny.measuring.diagnose import findings
from neoteny.runs.inspect import facts_of
from neoteny.settings.config import PlasticityConfig, TrainConfig


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_run_that_learns_stays_trainable(seed: int, tmp_path: Path) -> None:
    config = TrainConfig(
        "Pendulum-v1",
        TD3Config((64, 64), actor_lr=1e-3, learning_starts=500),
        total_timesteps=8_000,
        seed=seed,
        eval_every=8_000,
        checkpoint_every=0,
        plasticity=PlasticityConfig(probe_every=500),
    )
    run = neoteny.train(config, out=tmp_path / "run", quiet=True)
    found = findings(run)
    late = {network: [round(finding.late, 2) for finding in said[:3]] for network, said in found.items()}
    print(f"seed {seed}: return {facts_of(run)['evaluations']}, trainability, inactive, dormant {late}")
    assert list(facts_of(run)["evaluations"].values())[-1] > -500  # it does learn
    trainability = [finding for said in found.values() for finding in said if finding.rule.measure == "trainability"]
    assert len(trainability) == 2
    assert not any(finding.outside for finding in trainability)
