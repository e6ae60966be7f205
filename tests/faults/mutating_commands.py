"""Every command that reads files, in this process, with its result in substance."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import neoteny
from mutating_files import sha256, the_run
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.experiments import claims, command, estimate, plan
from neoteny.experiments.sweep import Outcome as Swept
from neoteny.experiments.work import carry_out, is_done, reason
from neoteny.report import figures, statistics
from neoteny.training.inspect import facts_of


@dataclass
class Outcome:
    """What came of a command: its exit status (None after an exception), what it said, and its result in substance."""

    status: int | None
    out: str
    err: str
    result: Any = None


def _run(words: list[str]) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            status: int | None = main(words)
        except BaseException:
            status = None
            err.write(traceback.format_exc())
    return Outcome(status, out.getvalue(), err.getvalue())


def _called(function: Callable[[], Any]) -> Outcome:
    """A function of Python's, as a command would tell of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return Outcome(0, "", "", function())
        except UsageError as error:
            return Outcome(2, "", f"neoteny python: {error}\n")
        except BaseException:
            return Outcome(None, "", traceback.format_exc())


def _with(words: list[str], result: Callable[[Outcome], Any]) -> Outcome:
    """A command, with its result if it ended well."""
    outcome = _run(words)
    if outcome.status == 0:
        outcome.result = result(outcome)
    return outcome


def _resumed(_: Outcome) -> Any:
    return [facts_of(the_run())["checkpoint"]["digests"], sha256((the_run() / "metrics.jsonl").read_bytes())]


def _inspected(outcome: Outcome) -> Any:
    facts = json.loads(outcome.out)
    if facts["checkpoint"]:
        del facts["checkpoint"]["bytes"]
    return facts


def _reported(outcome: Outcome) -> Any:
    tables = {str(path): path.read_text() for path in sorted(Path("report").rglob("tables/*"))}
    return [outcome.out, tables]


def _archived(_: Outcome) -> Any:
    return {str(path): path.read_text() for path in sorted(Path("archived").rglob("*.jsonl"))}


def _swept(outcome: Outcome) -> Any:
    """How many runs are done in the end; one that had to be finished again is as good."""
    return re.sub(r"\d+ of them (now|done)", "", outcome.out)


def _policy(run: Path) -> Any:
    observations = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    return neoteny.load_policy(run)(observations).tolist()


def _table(place: str) -> Any:
    rows = neoteny.load_runs(place)[["method", "task", "seed", "step", "return"]].values.tolist()
    return [list(map(str, row)) for row in rows if np.isfinite(row[-1])]


def _report(*words: str) -> Outcome:
    return _with(["report", *words, "--out", "report"], _reported)


def _said(outcome: Outcome) -> Any:
    return outcome.out


COMMANDS: dict[str, Callable[[], Outcome]] = {
    "resume": lambda: _with(["resume", str(the_run()), "--steps", "400"], _resumed),
    "evaluate": lambda: _with(["evaluate", str(the_run()), "--episodes", "2"], _said),
    "evaluate shared": lambda: _with(["evaluate", "shared", "--episodes", "2"], _said),
    "inspect": lambda: _with(["inspect", str(the_run()), "--json"], _inspected),
    "diagnose": lambda: _with(["diagnose", "probed"], _said),
    "report": lambda: _report("runs"),
    "report --plan": lambda: _report("runs", "--plan", "plan.toml"),
    "report archives": lambda: _report("results"),
    "report CSV": lambda: _report("others.csv"),
    "report npz": lambda: _report("sb3"),
    "claims": lambda: _with(["claims", "--out", "runs", "--archives", "none"], _said),
    "claims archives": lambda: _with(
        ["claims", "--archives", "results", "--page", "page.md"], lambda _: Path("page.md").read_text()
    ),
    "archive": lambda: _with(["archive", str(the_run()), "--out", "archived"], _archived),
    "archive again": lambda: _with(["archive", "runs", "--out", "results"], _said),
    "sweep": lambda: _with(["sweep", "plan.toml", "--out", "runs", "--archives", "none"], _swept),
    "sweep archives": lambda: _with(["sweep", "plan.toml", "--out", "none", "--archives", "results"], _said),
    "sweep --dry-run": lambda: _with(["sweep", "plan.toml", "--out", "none", "--archives", "none", "--dry-run"], _said),
    "reproduce": lambda: _with(["reproduce", "plan.toml", "--out", "runs", "--archives", "none"], _swept),
    "reproduce --dry-run": lambda: _with(
        ["reproduce", "whole.toml", "--out", "none", "--archives", "none", "--dry-run"], _said
    ),
    "load_runs": lambda: _called(lambda: _table("runs")),
    "load_runs archives": lambda: _called(lambda: _table("results")),
    "load_runs CSV": lambda: _called(lambda: _table("others.csv")),
    "load_runs npz": lambda: _called(lambda: _table("sb3")),
    "load_policy": lambda: _called(lambda: _policy(the_run())),
    "load_policy shared": lambda: _called(lambda: _policy(Path("shared"))),
}


def _sweep_here(planned: plan.Plan, out: Path, *_: Any, **__: Any) -> Any:
    """A sweep in this process: what it reads is the same, and it starts in no time."""
    outcome = Swept(before=[run for run in planned.runs if is_done(out / run.directory, run.config)])
    for run in planned.runs:
        if run in outcome.before:
            continue
        try:
            carry_out(run.config, out / run.directory)
            outcome.done.append(run)
        except UsageError as error:
            outcome.failed[str(run.directory)] = reason(error)
    return outcome


def stand_in() -> None:
    """Replace what takes long and no file decides: the processes of a sweep, the measured time of a plan, figures that
    were drawn before, most resamples of an interval; and our own plans by the world's."""
    drawn: set[str] = set()
    draw = figures.write_figures

    def draw_once(sections: Any, styles: Any, footnote: str, folder: Path) -> list[Path]:
        with np.printoptions(threshold=sys.maxsize):
            shown = repr((sections, styles, footnote))
        if shown in drawn:
            return []
        drawn.add(shown)
        return draw(sections, styles, footnote, folder)

    figures.write_figures = draw_once
    for function in (statistics.aggregates, statistics.profiles, statistics.improvement):
        function.__defaults__ = (20,)
    command.sweep = _sweep_here  # type: ignore[assignment]
    estimate.seconds = lambda *_: 60.0  # type: ignore[assignment]
    claims.papers_plans = plan.papers_plans = lambda: {"own": Path("plan.toml")}  # type: ignore[assignment]
