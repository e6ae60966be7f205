"""Runs that never ran: directories as `neoteny train` leaves them, with returns made up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from neoteny.experiments.plan import PlannedRun
from neoteny.settings.config import ReplayConfig, TrainConfig

STEPS = np.arange(1_000, 21_000, 1_000)


def write_run(
    folder: Path,
    env: str,
    replay: str,
    seed: int,
    level: float,
    done: bool = True,
    evaluate: bool = True,
    decay_steps: float | None = None,
) -> Path:
    """A run of 20 evaluations that climbs to about `level`, with ages, plasticity and times."""
    config = TrainConfig(
        env, replay=ReplayConfig(replay, decay_steps=decay_steps), total_timesteps=20_000, seed=seed, threads=1
    )
    return _write(folder, config, level, done, evaluate)


def write_planned(folder: Path, run: PlannedRun, level: float, measures: Mapping[str, float] | None = None) -> Path:
    """The same, as a plan says it should be, with these measures of plasticity."""
    return _write(folder, run.config, level, measures=measures or {})


def _write(
    folder: Path,
    config: TrainConfig,
    level: float,
    done: bool = True,
    evaluate: bool = True,
    measures: Mapping[str, float] = MappingProxyType({}),
) -> Path:
    replay = config.replay.replay
    path = folder / config.default_directory().relative_to("runs")
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"config": config.to_json(), "environment": {}, "versions": {}}))
    rng = np.random.default_rng([config.seed, len(replay), len(config.env)])
    returns = level * (1 - np.exp(-STEPS / 5_000)) * (1 + 0.05 * rng.standard_normal(20))
    with (path / "metrics.jsonl").open("w") as file:
        for step, value in zip(STEPS.tolist(), returns.tolist(), strict=True):
            name = "eval_return" if evaluate else "episode_return"
            probes = {
                "probe/critics/dormant_0.1": 0.1 + step / 2e5,
                "batch/critics/dormant_0.1": 9.0 + step / 1e5,
                **measures,
            }
            file.write(json.dumps({"step": step, "age_mean": step / (4 if replay == "swd" else 2)}) + "\n")
            file.write(json.dumps({"step": step, **probes}) + "\n")
            file.write(json.dumps({"step": step, name: value}) + "\n")
    with (path / "timing.jsonl").open("w") as file:
        file.write('{"step": 0, "seconds": 0.0, "life": 1, "first_step": 0}\n')
        file.write('{"step": 10000, "seconds": 3600.0, "steps_per_second": 50.0, "peak_resident_mb": 600}\n')
        file.write('{"step": 10000, "seconds": 0.0, "life": 2, "first_step": 10000}\n')
        file.write('{"step": 20000, "seconds": 1800.0, "steps_per_second": 70.0, "peak_resident_mb": 700}\n')
    if done:
        (path / "DONE").touch()
    return path


def write_runs(folder: Path, gain: float = 0.3, seeds: int = 5) -> Path:
    """Two replays, two tasks; SWD better by `gain`."""
    for env, level in (("Hopper-v5", 2_000.0), ("Reacher-v5", -200.0)):
        for seed in range(1, seeds + 1):
            wobble = 1 + 0.04 * (seed - 3)
            write_run(folder, env, "uniform", seed, level * wobble)
            write_run(folder, env, "swd", seed, level * wobble + gain * abs(level))
    return folder
