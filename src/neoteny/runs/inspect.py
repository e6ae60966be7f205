"""What a run is and how far it got, with a digest of each part of its newest checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.runs.checkpoint import digests, folder_of, manifests
from neoteny.runs.run import read_config, read_metrics
from neoteny.wording import counted


def facts_of(directory: Path) -> dict[str, Any]:
    """Everything that `describe` says, as JSON."""
    config, facts = read_config(directory)
    metrics = read_metrics(directory)
    found: dict[str, Any] = {
        "run": str(directory),
        "agent": config.agent_name,
        "env": config.env,
        "replay": config.replay.replay,
        "seed": config.seed,
        "done": (directory / "DONE").exists(),
        "step": max((line["step"] for line in metrics), default=0),
        "total_timesteps": config.total_timesteps,
        "episode_returns": [line["episode_return"] for line in metrics if line.get("episode_return") is not None],
        "evaluations": {line["step"]: line["eval_return"] for line in metrics if line.get("eval_return") is not None},
        "steps_not_stored": config.num_envs * max((line.get("dropped_steps", 0) for line in metrics), default=0),
        "versions": {**facts["versions"], **facts["environment"]["versions"]},
        "checkpoint": None,
    }
    if manifests(directory):
        size = sum(path.stat().st_size for path in folder_of(directory).rglob("*.npz"))
        try:
            checkpoint, made, complaints = digests(directory)
        except UsageError as error:
            found["checkpoint"] = {"step": None, "bytes": size, "digests": {}, "damaged": [str(error)]}
        else:
            found["checkpoint"] = {"step": checkpoint.step, "bytes": size, "digests": made, "damaged": complaints}
    return found


def describe(facts: dict[str, Any]) -> str:
    """A run in a few lines."""
    lines = [
        f"{facts['run']}: {facts['agent']} on {facts['env']}, {facts['replay']} replay, seed {facts['seed']}",
        f"  {'done' if facts['done'] else 'not finished'}: {facts['step']:,} of {facts['total_timesteps']:,} steps, "
        f"{counted(len(facts['episode_returns']), 'episode')}",
    ]
    if facts["steps_not_stored"]:
        lines.append("  " + describe_dropped(facts["steps_not_stored"]))
    if last := facts["episode_returns"][-20:]:
        lines.append(
            f"  training return: mean {sum(last) / len(last):.2f} over the last {counted(len(last), 'episode')}"
        )
    if evaluations := facts["evaluations"]:
        step, value = list(evaluations.items())[-1]
        best = max(evaluations, key=lambda at: float(evaluations[at]))
        lines.append(f"  evaluation: {value:.2f} at step {step:,}; best {evaluations[best]:.2f} at step {best:,}")
    if checkpoint := facts["checkpoint"]:
        at = "none that is whole" if checkpoint["step"] is None else f"step {checkpoint['step']:,}"
        lines.append(f"  checkpoint: {at}, {checkpoint['bytes'] / 1e6:,.1f} MB on disk")
        lines += [f"    {name:<11} {value}" for name, value in checkpoint["digests"].items()]
        lines += [f"    {complaint}" for complaint in checkpoint["damaged"]]
    lines.append("  " + ", ".join(f"{name} {number}" for name, number in facts["versions"].items()))
    return "\n".join(lines)


def describe_dropped(steps: int) -> str:
    """What a person is told of the steps that were not stored."""
    return (
        f"{counted(steps, 'step')} {'was' if steps == 1 else 'were'} not stored because the environment returned NaN "
        "or infinity; the episodes that this cut short are not counted."
    )
