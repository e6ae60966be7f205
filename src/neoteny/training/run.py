"""A run is a directory: config.json, metrics.jsonl, timing.jsonl, tensorboard/, policy/, DONE. All else is derived."""

from __future__ import annotations

import json
import math
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from neoteny import __version__
from neoteny.errors import UsageError
from neoteny.training.config import TrainConfig


class Run:
    """Writes a run's records. What depends on the clock goes to timing.jsonl, so that metrics.jsonl is the same bytes
    for the same seed."""

    def __init__(self, directory: Path, config: TrainConfig, environment: dict[str, Any]) -> None:
        if directory.is_file():
            raise UsageError(f"{directory} is a file: name a directory with --out")
        if directory.exists() and any(directory.iterdir()):
            raise UsageError(f"{directory} already holds a run: name another with --out, or remove it")
        from tensorboardX import SummaryWriter

        self._wandb = _start_wandb(directory, config) if config.wandb else None
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        facts = {"config": config.to_json(), "environment": environment, "versions": _versions()}
        (directory / "config.json").write_text(json.dumps(facts, indent=2) + "\n")
        self._metrics = (directory / "metrics.jsonl").open("a")
        self._timing = (directory / "timing.jsonl").open("a")
        self._board = SummaryWriter(str(directory / "tensorboard"))
        self._start = time.perf_counter()

    def log(self, step: int, **values: Any) -> None:
        """A line of metrics: numbers, or lists of them."""
        # Ages are NaN before the first draw, and left out; any other NaN is news, and stands as null.
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
            if not (name.startswith("age_") and math.isnan(value))
        }
        self._metrics.write(json.dumps({"step": step, **finite}) + "\n")
        self._metrics.flush()
        numbers = {name: value for name, value in finite.items() if isinstance(value, (int, float))}
        for name, value in numbers.items():
            self._board.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def log_timing(self, step: int, **values: Any) -> None:
        """A line of what depends on the clock."""
        self._timing.write(json.dumps({"step": step, "seconds": round(self.seconds, 3), **values}) + "\n")
        self._timing.flush()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._start

    def finish(self) -> None:
        """Mark the run as done."""
        (self.directory / "DONE").touch()

    def close(self) -> None:
        """Close its files."""
        self._metrics.close()
        self._timing.close()
        self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def read_config(directory: Path) -> tuple[TrainConfig, dict[str, Any]]:
    """The configuration of a run, and everything that config.json says."""
    path = directory / "config.json"
    if not path.exists():
        raise UsageError(f"{directory} is not a run: it has no config.json")
    facts = json.loads(path.read_text())
    return TrainConfig.from_json(facts["config"]), facts


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    path = directory / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _versions() -> dict[str, str]:
    found = {"neoteny": __version__}
    for name in ("numpy", "jax", "jaxlib", "flax", "optax"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _start_wandb(directory: Path, config: TrainConfig) -> Any:
    try:
        import wandb
    except ImportError as error:
        raise UsageError("--wandb needs wandb, which is not installed: pip install wandb") from error
    return wandb.init(project="neoteny", dir=str(directory), config=config.to_json(), name=str(directory))


def describe_run(directory: Path) -> str:
    """What a run is and how far it got, in a few lines."""
    config, facts = read_config(directory)
    metrics = read_metrics(directory)
    step = max((line["step"] for line in metrics), default=0)
    returns = [line["episode_return"] for line in metrics if "episode_return" in line]
    evaluations = [line for line in metrics if "eval_return" in line]
    state = "done" if (directory / "DONE").exists() else "not finished"
    lines = [
        f"{directory}: {config.agent_name} on {config.env}, {config.replay.replay} replay, seed {config.seed}",
        f"  {state}: {step:,} of {config.total_timesteps:,} steps, {len(returns)} episodes",
    ]
    if returns:
        last = returns[-20:]
        lines.append(f"  training return: mean {sum(last) / len(last):.2f} over the last {len(last)} episodes")
    if evaluations:
        best = max(evaluations, key=lambda line: float(line["eval_return"]))
        lines.append(
            f"  evaluation: {evaluations[-1]['eval_return']:.2f} at step {evaluations[-1]['step']:,}; "
            f"best {best['eval_return']:.2f} at step {best['step']:,}"
        )
    versions = {**facts["versions"], **facts["environment"]["versions"]}
    lines.append("  " + ", ".join(f"{name} {number}" for name, number in versions.items()))
    return "\n".join(lines)
