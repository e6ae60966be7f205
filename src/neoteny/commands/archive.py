"""``neoteny archive``: finished runs into small text files that belong in git."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neoteny.arguments import Parser
from neoteny.errors import UsageError
from neoteny.report.archive import read_archive, read_digests, read_run, write_archive
from neoteny.runs.checkpoint import digests, manifests
from neoteny.runs.files import checksum
from neoteny.runs.run import read_config
from neoteny.settings.config import TrainConfig

DESCRIPTION = """Archive finished runs. Each becomes one small text file with its configuration, versions, commit,
evaluation returns, measures of plasticity and timing, and without checkpoints. An archive belongs in git; report,
claims and sweep read it like the run itself. Example: neoteny archive runs --out results/fig2"""


def main(argv: list[str]) -> int:
    """Archive the finished runs in some directories."""
    parser = Parser("neoteny archive", DESCRIPTION)
    parser.add_argument("runs", type=Path, nargs="+", help="directories of runs, or directories that contain runs")
    parser.add_argument("--out", type=Path, required=True, help="the directory to write into, such as results/fig2")
    options = parser.parse_args(argv)
    written, same, unfinished = archive(options.runs, options.out)
    for path in written:
        print(f"archived  {path} ({path.stat().st_size / 1_000:.0f} KB)")
    for run in unfinished:
        print(f"left out  {run}: it is not finished")
    print(f"{len(written)} archived in {options.out}, {len(same)} there already, {len(unfinished)} not finished.")
    return 0


def archive(places: Sequence[Path], out: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Archive every finished run in `places`; return the files written, those there before, and runs left out."""
    written, same, unfinished = [], [], []
    runs = [config.parent for place in places for config in sorted(place.rglob("config.json"))]
    if not runs:
        raise UsageError(f"there are no runs in {', '.join(map(str, places))}: name the directory that contains them")
    for directory in runs:
        config, facts = read_config(directory)
        if not (directory / "DONE").exists():
            unfinished.append(directory)
            continue
        name = str(config.default_directory(own_parts(config, facts)).relative_to("runs"))
        path = out / f"{name}.jsonl"
        made = digests_of(directory)
        if path.exists():
            _check_same(path, directory, made)
            same.append(path)
            continue
        write_archive(path, name, read_run(directory, config, facts), made)
        read_archive(path)  # what cannot be read back must not be committed
        written.append(path)
    return written, same, unfinished


def own_parts(config: TrainConfig, facts: dict[str, Any]) -> dict[str, str]:
    """Return what makes a run another one than its settings say: the user's own parts, or a length that was changed."""
    made = facts["environment"]
    own = {name: made[name] for name in ("make_env", "network") if made.get(name)}
    planned = made.get("horizon", config.total_timesteps)
    return own if planned == config.total_timesteps else {**own, "horizon": str(planned)}


def digests_of(directory: Path) -> dict[str, str]:
    """Return digests of a run's metrics and of each part of its last checkpoint."""
    saved = digests(directory)[1] if manifests(directory) else {}
    return {"metrics": checksum((directory / "metrics.jsonl").read_bytes())[:16], **saved}


def _check_same(path: Path, directory: Path, made: dict[str, str]) -> None:
    """Refuse to replace a result by another one of the same run: nobody chooses which results are kept."""
    before = read_digests(path)
    if differing := sorted(name for name in made if before.get(name) != made[name]):
        raise UsageError(
            f"{path} is the archive of another result of the same run as {directory} (they differ in "
            f"{', '.join(differing)}): keep it, or remove it by hand and say why"
        )
