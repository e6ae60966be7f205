"""A small world of files, and what is known of each kind: how it is damaged, who reads it, and what it says.

What a person writes is read here a second time, by a few lines that refuse whatever is ambiguous.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import neoteny
from mutating import ARRAYS, BYTES, INNER, JSON, TEXT, WRITTEN, Mutator, linked_folder
from neoteny.experiments.archiving import archive
from neoteny.experiments.plan import load_plan

PLAN = """title = "Does the schedule matter?"
agent = "td3"
environments = ["Pendulum-v1"]
steps = 300
seeds = [1, 2]

[settings]
learning_starts = 100
widths = [16]
batch_size = 16
capacity = 400
eval_every = 100
eval_episodes = 1
log_every = 50
probe_every = 0
checkpoint_every = 1e9
keep_checkpoints = 2

[methods]
uniform = { replay = "uniform" }
swd = { replay = "swd", decay_steps = 100 }
"""
OTHERS = {("uniform", 1): 100.0, ("uniform", 2): 120.0, ("swd", 1): 150.0, ("swd", 2): 140.0}
"""Runs of someone else, and what each returned in the end."""


def make_world(world: Path) -> None:
    """Four runs of a plan, with archives, a probed run, a policy to share, and runs of someone else."""
    world.mkdir()
    with contextlib.chdir(world):
        Path("plan.toml").write_text(PLAN)
        Path("whole.toml").write_text('title = "All"\nincludes = ["plan.toml"]\n')
        runs = load_plan("plan.toml").runs
        for run in runs:
            neoteny.train(run.config, out=Path("runs") / run.directory, quiet=True)
        probes = dataclasses.replace(runs[0].config.plasticity, probe_every=50)
        neoteny.train(dataclasses.replace(runs[0].config, plasticity=probes), out="probed", quiet=True)
        archive([Path("runs")], Path("results"))
        shutil.copytree(the_run(), "shared", ignore=shutil.ignore_patterns("*.jsonl", "checkpoint", "tensorboard"))
        lines = [
            f"{method},Hopper-v5,{seed},{step},{value * step / 3_000!r}\n"
            for (method, seed), value in OTHERS.items()
            for step in (1_000, 2_000, 3_000)
        ]
        Path("others.csv").write_text("method,task,seed,step,return\n" + "".join(lines))
        for (method, seed), value in OTHERS.items():
            folder = Path("sb3") / method / f"Hopper-v5_{seed}"
            folder.mkdir(parents=True)
            steps = np.array([1_000, 2_000, 3_000])
            np.savez(folder / "evaluations.npz", timesteps=steps, results=np.outer(steps, [value / 3_000] * 2))


def _made(agent: str, which: str) -> Path:
    return next(Path("runs", "Pendulum-v1", agent).glob(which))


def the_run() -> Path:
    """The run whose files are damaged."""
    return _made("td3-swd", "1-*")


def another_run() -> Path:
    """A run of the same method with another seed, whose files are swapped with those of the first."""
    return _made("td3-swd", "2-*")


# The kinds of files


@dataclass(frozen=True)
class Kind:
    """A kind of file: which are such, with which it is swapped, how it is damaged, and who reads it."""

    files: Callable[[], list[tuple[Path, Path]]]
    """Each with a file of the same kind that belongs elsewhere."""
    mutators: list[Mutator]
    commands: list[str]
    reading: Callable[[Path], None] | None = None
    """Of an input: write the same file again from an independent reading of it, or raise an error if it is broken."""
    forge: Callable[[Path], None] | None = None
    """Give the file the checksum that fits."""


def _of_run(*names: str) -> Callable[[], list[tuple[Path, Path]]]:
    """Files by patterns, each with the same file of the other run; of several with the next of the same run, too."""

    def files() -> list[tuple[Path, Path]]:
        mine, others = (
            [path for name in names for path in sorted(run.glob(name))] for run in (the_run(), another_run())
        )
        pairs = list(zip(mine, others, strict=True))
        return pairs + (list(zip(mine, mine[1:] + mine[:1], strict=True)) if len(mine) > 1 else [])

    return files


def _shared(name: str) -> Callable[[], list[tuple[Path, Path]]]:
    return lambda: [(next(Path("shared").glob(name)), next(another_run().glob(name)))]


def _archives() -> list[tuple[Path, Path]]:
    one, two = (next(Path("results/Pendulum-v1/td3-swd").glob(f"{seed}-*.jsonl")) for seed in (1, 2))
    return [(one, two)]


def _evaluations() -> list[tuple[Path, Path]]:
    return [(Path("sb3/swd/Hopper-v5_1/evaluations.npz"), Path("sb3/swd/Hopper-v5_2/evaluations.npz"))]


def _read_csv(path: Path) -> None:
    """Every line has every column once, every number is one, and no evaluation is there twice."""
    _regular(path)
    rows = [
        row for row in csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""), strict=True) if row
    ]
    header, body = rows[0], rows[1:]
    columns = [header.index(name) for name in ("method", "task", "seed", "step", "return")]
    if len(set(header)) < len(header) or not body or any(len(row) != len(header) for row in body):
        raise ValueError("not a table")
    read = [
        (row[a], row[b], _whole(row[c]), _whole(row[d]), float(row[e])) for row in body for a, b, c, d, e in [columns]
    ]
    if len({row[:4] for row in read}) < len(read):
        raise ValueError("an evaluation twice")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("method", "task", "seed", "step", "return"), *read])


def _whole(text: str) -> int:
    number = float(text)
    if not number.is_integer() or number < 0:
        raise ValueError(text)
    return int(number)


def _read_npz(path: Path) -> None:
    _regular(path)
    with np.load(path, allow_pickle=False) as saved:
        steps, results = saved["timesteps"], saved["results"]
    if steps.ndim != 1 or steps.dtype.kind not in "iu" or results.dtype.kind not in "iuf" or not len(steps):
        raise ValueError("not what SB3 writes")
    if results.ndim < 1 or len(results) != len(steps) or not results.size or len(set(steps.tolist())) < len(steps):
        raise ValueError("not what SB3 writes")
    np.savez(path, timesteps=steps, results=results.astype(np.float64))


def _read_toml(path: Path) -> None:
    _regular(path)
    data = tomllib.loads(path.read_bytes().decode())
    known = {"title", "agent", "environments", "steps", "seeds", "settings", "methods", "grid", "preset", "paper"}
    if not set(data) <= known | {"claims", "laptop", "includes"}:
        raise ValueError("unknown keys")
    path.write_text("".join(f"{json.dumps(key)} = {_toml(value)}\n" for key, value in data.items()))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and not np.isfinite(value):
        raise ValueError("a number that is none")
    return json.dumps(value) if isinstance(value, (str, bool, int, float)) else str(value)


def _regular(path: Path) -> None:
    if not path.is_file():
        raise ValueError("not a file")


def _seal_manifest(path: Path) -> None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        sealed = json.loads(path.read_bytes())
        sealed["sha256"] = sha256(json.dumps(sealed["checkpoint"], sort_keys=True).encode())
        path.write_text(json.dumps(sealed))


def _seal_config(path: Path) -> None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        facts = json.loads(path.read_bytes())
        del facts["sha256"]
        path.write_text(json.dumps({**facts, "sha256": sha256(json.dumps(facts, sort_keys=True).encode())}))


def _seal_in_manifests(path: Path) -> None:
    """The checksum of a file of arrays, in every manifest that names it."""
    for manifest in sorted(the_run().glob("checkpoint/*.json")):
        sealed = json.loads(manifest.read_bytes())
        for part in [sealed["checkpoint"], *sealed["checkpoint"]["segments"]]:
            if Path(part["file"]).name == path.name:
                part["sha256"] = sha256(path.read_bytes())
        manifest.write_text(json.dumps(sealed))
        _seal_manifest(manifest)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


RUNS = ["report", "report --plan", "claims", "archive", "archive again", "sweep", "reproduce", "load_runs"]
"""Commands that read the runs of a folder."""
CHECKPOINTS = ["resume", "inspect", "archive"]
BINARY = [*BYTES, linked_folder]
KINDS = {
    "config.json": Kind(
        _of_run("config.json"), BYTES + TEXT + JSON, ["resume", "evaluate", "inspect", "load_policy", *RUNS]
    ),
    "metrics.jsonl": Kind(
        _of_run("metrics.jsonl"),
        BYTES + TEXT + JSON,
        [
            "resume",
            "inspect",
            "report",
            "report --plan",
            "claims",
            "archive",
            "archive again",
            "reproduce",
            "load_runs",
        ],
    ),
    "timing.jsonl": Kind(
        _of_run("timing.jsonl"), BYTES + TEXT + JSON, ["resume", "report", "archive", "load_runs", "inspect"]
    ),
    "DONE": Kind(_of_run("DONE"), BYTES, ["resume", "inspect", *RUNS]),
    "lock": Kind(_of_run("lock"), BYTES, ["resume", "sweep", "inspect"]),
    "manifest": Kind(_of_run("checkpoint/*.json"), BYTES + TEXT + JSON + [linked_folder], CHECKPOINTS),
    "state": Kind(_of_run("checkpoint/*.npz"), BINARY + ARRAYS, CHECKPOINTS),
    "segment": Kind(_of_run("checkpoint/segments/*.npz"), BINARY + ARRAYS, CHECKPOINTS),
    "events": Kind(_of_run("tensorboard/*"), BINARY, ["resume", "inspect"]),
    "policy": Kind(_of_run("policy/*.npz"), BINARY + ARRAYS, ["evaluate", "load_policy", "resume"]),
    "shared config.json": Kind(_shared("config.json"), BYTES + TEXT + JSON, ["evaluate shared", "load_policy shared"]),
    "shared policy": Kind(_shared("policy/*.npz"), BINARY + ARRAYS, ["evaluate shared", "load_policy shared"]),
    "forged config.json": Kind(_of_run("config.json"), JSON, ["resume", "evaluate", "inspect"], forge=_seal_config),
    "forged manifest": Kind(_of_run("checkpoint/*.json"), JSON, ["resume", "inspect"], forge=_seal_manifest),
    "forged state": Kind(
        _of_run("checkpoint/*.npz"), ARRAYS + INNER, ["resume", "resume", "inspect"], forge=_seal_in_manifests
    ),
    "forged segment": Kind(
        _of_run("checkpoint/segments/*.npz"), ARRAYS + INNER, ["resume", "inspect"], forge=_seal_in_manifests
    ),
    "probed metrics.jsonl": Kind(
        lambda: [(Path("probed/metrics.jsonl"), the_run() / "metrics.jsonl")], BYTES + TEXT + JSON, ["diagnose"]
    ),
    "probed config.json": Kind(
        lambda: [(Path("probed/config.json"), the_run() / "config.json")], BYTES + TEXT + JSON, ["diagnose"]
    ),
    "archive": Kind(
        _archives,
        BYTES + TEXT + JSON,
        ["report archives", "claims archives", "sweep archives", "load_runs archives", "archive again"],
    ),
    "plan": Kind(
        lambda: [(Path("plan.toml"), Path("whole.toml"))],
        BYTES + TEXT + WRITTEN * 3,
        ["sweep --dry-run", "reproduce --dry-run", "report --plan"],
        _read_toml,
    ),
    "CSV": Kind(
        lambda: [(Path("others.csv"), Path("plan.toml"))],
        BYTES + TEXT + WRITTEN * 3,
        ["report CSV", "load_runs CSV"],
        _read_csv,
    ),
    "evaluations.npz": Kind(_evaluations, BYTES + ARRAYS * 2, ["report npz", "load_runs npz"], _read_npz),
}
