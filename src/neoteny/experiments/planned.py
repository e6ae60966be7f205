"""Whether the run in a plan's directory is the plan's: a run that was made longer there, or changed, is another one."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.experiments.plan import PlannedRun
from neoteny.experiments.reduced import NAMES, in_words
from neoteny.experiments.sweep import in_use
from neoteny.report.scores import flat
from neoteny.training.config import TrainConfig
from neoteny.training.records import is_run, read_config


def differing(directory: Path, planned: TrainConfig) -> str:
    """Return in what the run in a directory is not the one planned there; nothing if it is, or if none is there."""
    if not is_run(directory):
        return ""
    from neoteny.training.identity import canonical, own_parts  # Gymnasium, which a report of nothing does not need

    config, facts = read_config(directory)
    found, wanted = {**canonical(config), **own_parts(config, facts)}, canonical(planned)
    names = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    if "total_timesteps" in names:  # which makes its horizon another one, too
        names = [name for name in names if name != "horizon"]

    def value(known: dict[str, Any], settings: TrainConfig, name: str) -> str:
        given = flat(settings).get(name)
        given = known.get(name) if given is None else given
        return "the default" if given is None else in_words(given)

    return ", ".join(
        f"{NAMES.get(name, name.replace('_', ' '))} {value(found, config, name)} instead of "
        f"{value(wanted, planned, name)}"
        for name in names
    )


def left_out(runs: Sequence[PlannedRun], places: Sequence[Path]) -> list[str]:
    """Return a sentence for each run in `places` that is where a plan has its own and is another one."""
    found = ((path := place / run.directory, differing(path, run.config)) for run in runs for place in places)
    return [f"Left out: {path}, which is not the plan's run ({words})." for path, words in found if words]


def check_planned(runs: Sequence[PlannedRun], out: Path) -> None:
    """Refuse to sweep where another run is in the place of a plan's, before anything starts: it must not be lost."""
    for run in runs:
        path = out / run.directory
        with contextlib.suppress(UsageError):  # config.json is damaged: that run fails, with the reason, and no other
            if words := differing(path, run.config):
                break
    else:
        return
    if in_use(path):
        raise UsageError(f"{path} is not the plan's run ({words}), and another process is at work on it: wait for it")
    from neoteny.training.identity import own_parts

    config, facts = read_config(path)
    aside = path.with_name(config.default_directory(own_parts(config, facts)).name)
    if aside.exists():
        aside = path.with_name(f"{path.name}-moved")
    move = f"mv {shlex.quote(str(path))} {shlex.quote(str(aside))}"
    raise UsageError(
        f"{path} is not the plan's run ({words}): move it with {move}, and the same command makes the plan's own run"
    )
