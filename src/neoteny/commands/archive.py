"""``neoteny archive``: finished runs into small text files that belong in git."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neoteny.arguments import Parser
from neoteny.errors import UsageError
from neoteny.report.archive import read_archive, read_digests, read_run, write_archive
from neoteny.runs.checkpoint import digests
from neoteny.runs.files import checksum
from neoteny.runs.manifest import manifests
from neoteny.runs.records import METRICS, end_again, is_finished, read_bytes, read_config, read_metrics, runs_in
from neoteny.settings.identity import own_parts

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
        untimed = read_archive(path).timing["seconds"] is None
        without = ", without its timing: timing.jsonl is missing, damaged, or was changed after the run finished"
        print(f"archived  {path} ({path.stat().st_size / 1_000:.0f} KB){without * untimed}")
    for run in unfinished:
        print(f"left out  {run}: it is not finished")
    print(f"{len(written)} archived in {options.out}, {len(same)} there already, {len(unfinished)} not finished.")
    return 0


def archive(places: Sequence[Path], out: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Archive every finished run in `places`; return the files written, those there before, and runs left out."""
    written, same, unfinished = [], [], []
    runs = [directory for place in places for directory in runs_in(place)]
    if not runs:
        raise UsageError(f"there are no runs in {', '.join(map(str, places))}: name the directory that contains them")
    for directory in runs:
        config, facts = read_config(directory)
        if not is_finished(directory):
            unfinished.append(directory)
            continue
        name = str(config.default_directory(own_parts(config, facts)).relative_to("runs"))
        path = out / f"{name}.jsonl"
        history, run_digests = read_run(directory, config, facts), digests_of(directory)
        if path.exists():
            _check_same(path, directory, run_digests)
            same.append(path)
            continue
        write_archive(path, name, history, run_digests)
        read_archive(path)  # what cannot be read back must not be committed
        written.append(path)
    return written, same, unfinished


def digests_of(directory: Path) -> dict[str, str]:
    """Return digests of a finished run's metrics and of each part of its last checkpoint, which must be of its end."""
    saved: dict[str, str] = {}
    if manifests(directory):
        checkpoint, saved, complaints = digests(directory)
        config = read_config(directory)[0]
        early = config.stop_at_return is not None  # such a run may end before its last step
        end = read_metrics(directory)[-1]["step"] if early else config.total_timesteps
        if complaints or checkpoint.step < end:
            why = complaints[0] if complaints else f"its last checkpoint is of step {checkpoint.step:,}"
            raise UsageError(f"{directory} cannot be archived: {why}; {end_again(directory)}")
    return {"metrics": checksum(read_bytes(directory / METRICS))[:16], **saved}


def _check_same(path: Path, directory: Path, run_digests: dict[str, str]) -> None:
    """Refuse to replace a result by another one of the same run: nobody chooses which results are kept."""
    before = read_digests(path)
    if differing := sorted(name for name in run_digests if before.get(name) != run_digests[name]):
        raise UsageError(
            f"{path} is the archive of another result of the same run as {directory} (they differ in "
            f"{', '.join(differing)}): keep it, or remove it by hand and say why"
        )
