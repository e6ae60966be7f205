"""``neoteny sweep`` and ``neoteny reproduce``: what they take, and what they say."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from neoteny.arguments import Parser
from neoteny.errors import Interrupted, RunStopped, UsageError, missing_extra
from neoteny.experiments.cores import usable_cores
from neoteny.experiments.plan import SCALES, Plan, PlannedRun, load_plan
from neoteny.experiments.planned import check_planned
from neoteny.experiments.sweep import LOWEST, Outcome, sweep
from neoteny.experiments.work import is_done
from neoteny.report.archive import archived_in
from neoteny.report.scores import AT_LEAST, LAST
from neoteny.settings.cautions import cautions
from neoteny.wording import counted

TO_BE_CONTINUED = 75
"""The exit status of a sweep that was stopped by --stop-after, with runs left: start it again."""


ABOUT = {
    "sweep": """Carry out a plan: train every run that it names and that is not done yet.

A plan is a TOML file that names an agent, environments, seeds and the methods to compare. Each run is a
directory under --out, which neoteny report reads. The runs share this machine's cores, one on each, or a
Ray cluster. Ctrl-C saves every run, and the same command resumes them; runs that are done are not repeated.

  neoteny sweep my-plan.toml --dry-run     list the runs, and estimate how long they take
  neoteny sweep my-plan.toml               carry them out

docs/experiments.md shows how to write a plan.""",
    "reproduce": """Carry out the plan of one of the paper's claims, and write a report with a verdict on the claim.

It takes the name of a plan; neoteny claims lists them, with what the paper reports of each. --scale laptop
carries out a smaller version, and prints what it makes smaller, or the plan of the laboratory that asks the same
question. --scale quick takes minutes, shows that a plan runs, and decides nothing. Ctrl-C saves every run, and the
same command resumes them. The report is written under --out when all runs are done.

  neoteny reproduce swd/fig2 --scale laptop --dry-run     list the runs, and estimate how long they take
  neoteny reproduce swd/fig2 --scale laptop               carry them out, and write the report""",
}
"""What each command says of itself."""


def main(argv: list[str]) -> int:
    """Run ``neoteny sweep``."""
    return carry_out("sweep", argv)


def carry_out(prog: str, argv: list[str]) -> int:
    """Carry out the plans that the words after ``neoteny sweep`` or ``neoteny reproduce`` name."""
    options = _parser(prog).parse_args(argv)
    cores = usable_cores()
    if options.launcher == "ray" and options.jobs is not None:
        raise UsageError("--jobs is for --launcher cores: on Ray as many runs as the cluster has cores run at once")
    if options.address and options.launcher != "ray":
        raise UsageError("--address is for --launcher ray")
    if options.jobs is not None:
        if not 1 <= options.jobs <= len(cores):
            raise UsageError(f"--jobs must be in 1..{len(cores)}, the cores that may be used, got {options.jobs}")
        cores = cores[: options.jobs]
    if options.low_priority and options.launcher == "ray":
        raise UsageError("--low-priority is for --launcher cores: on Ray the cluster decides what runs when")
    stop_after = seconds_of(options.stop_after) if options.stop_after else None
    archived = archived_in(options.archives)
    plans = [load_plan(name, options.scale) for name in options.plan]  # all are checked before any is carried out
    for plan in plans:
        print(describe(plan, options.out, archived))
    plan = joined(plans)
    if options.shard:
        plan = plan.shard(*_shard(options.shard))
    plan = dataclasses.replace(plan, runs=tuple(run for run in plan.runs if str(run.directory) not in archived))
    if not plan.runs:
        print(f"Every run is archived in {options.archives}, so there is nothing to do.")
        return _finish(prog, plans, options)
    _check(plan, options.out, len(cores) if options.launcher == "cores" else None)
    if options.dry_run:
        return _dry_run(plan, options.out, len(cores))
    if options.launcher == "ray":
        from neoteny.experiments.on_ray import sweep_on_ray

        outcome = sweep_on_ray(plan, options.out, options.address, stop_after)
    else:
        outcome = sweep(plan, options.out, cores, stop_after, nice=LOWEST if options.low_priority else 0)
    return conclude(outcome, plan, options.out) or _finish(prog, plans, options)


def _finish(prog: str, plans: list[Plan], options: argparse.Namespace) -> int:
    """Write the report of each plan, if that was asked for."""
    for name, plan in zip(options.plan, plans, strict=True) if prog == "reproduce" and not options.dry_run else ():
        _report(name, plan, options)
    return 0


def joined(plans: list[Plan]) -> Plan:
    """Return several plans as one: their runs in the order given, each once, so that no core waits between two."""
    runs: dict[Path, PlannedRun] = {}
    for plan in plans:
        for run in plan.runs:
            runs.setdefault(run.directory, run)
    return dataclasses.replace(plans[0], name=" + ".join(plan.name for plan in plans), runs=tuple(runs.values()))


def _parser(prog: str) -> Parser:
    parser = Parser(f"neoteny {prog}", ABOUT[prog])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # the examples keep their lines
    parser.add_argument(
        "plan",
        nargs="+",
        help="a .toml file, or the name of a plan such as swd/fig2, which neoteny claims lists; several are carried "
        "out in the order given",
    )
    parser.add_argument(
        "--scale",
        choices=SCALES,
        default="full",
        help="the plan as it stands, or with what its [laptop] or [quick] part makes smaller (default: full)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="the directory in which the runs are (default: runs)"
    )
    parser.add_argument(
        "--archives",
        type=Path,
        default=Path("results"),
        help="a directory of archived runs, which count as done (default: results, if it is there)",
    )
    parser.add_argument(
        "--launcher",
        choices=("cores", "ray"),
        default="cores",
        help="whether the runs share this machine's cores or a Ray cluster (default: cores)",
    )
    parser.add_argument(
        "--address", help="the address of the Ray cluster; auto means the one that this machine belongs to"
    )
    parser.add_argument("--jobs", type=int, help="how many runs to carry out at once (default: one on each core)")
    parser.add_argument(
        "--low-priority", action="store_true", help="run at the lowest priority, so that anything else comes first"
    )
    parser.add_argument(
        "--shard", metavar="I/N", help="carry out only the I-th of N parts of the plan, for example in a job array"
    )
    parser.add_argument(
        "--stop-after",
        metavar="TIME",
        help="save every run and stop after this time, such as 23h, 90m or 30s; the exit status is then 75",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list the runs and estimate how long they take, but start none"
    )
    return parser


def _check(plan: Plan, out: Path, jobs: int | None) -> None:
    """Refuse what cannot run, before anything is started. jobs: runs at once on this machine; None on a cluster."""
    check_planned(plan.runs, out)
    left = [run for run in plan.runs if not is_done(out / run.directory, run.config)]
    if not left:
        return
    try:
        from neoteny.experiments.ready import check_environments, check_memory
    except ImportError as error:
        raise missing_extra("training", "train", error) from error
    sizes = check_environments(left)
    if jobs is not None:
        check_memory(sizes, jobs)


def _report(name: str, plan: Plan, options: argparse.Namespace) -> None:
    """The page, once every run is there; of a part of the plan, how to make it."""
    folder = options.out / "report" / f"{plan.name.replace('/', '-')}-{plan.scale}"
    if options.shard:
        words = [str(options.out), "--plan", name, "--scale", options.scale, "--out", str(folder)]
        print(f"Once every part is done: neoteny report {shlex.join(words)}")
        return
    from neoteny.commands.report import report_plan

    report_plan(plan, [place for place in (options.out, options.archives) if place.exists()], folder)


def describe(plan: Plan, out: Path, archived: Mapping[str, Path]) -> str:
    """A plan in a few lines."""
    lines = [f"{plan.name}, {plan.scale} scale: {plan.title}"]
    if plan.instead_of:
        lines.insert(
            0,
            f"{plan.instead_of} has no smaller scale of its own: {plan.name}, which asks its question, is carried out "
            "instead.",
        )
    if plan.paper:
        lines.append(f"  the paper: {plan.paper}")
    if plan.reduced:
        lines.append(f"  reduced: {plan.reduced}")
    lines.append(f"  score of a run: its mean return over the last {LAST:.0%} of evaluations, at least {AT_LEAST}")
    kept = [run for run in plan.runs if str(run.directory) in archived]
    done = sum(is_done(out / run.directory, run.config) for run in plan.runs if run not in kept)
    lines.append(
        f"  {counted(len(plan.runs), 'run')}, {done} of them done in {out}" + f", {len(kept)} archived" * bool(kept)
    )
    said = dict.fromkeys(text for run in plan.runs for text in cautions(run.config))
    return "\n".join([*lines, *(f"  {text}" for text in said)])


def conclude(outcome: Outcome, plan: Plan, out: Path) -> int:
    """Say what became of it; the exit status."""
    done = len(outcome.before) + len(outcome.done)
    print(f"Done in {out}: {done} of {counted(len(plan.runs), 'run')}, {len(outcome.done)} of them now.")
    for run in outcome.elsewhere:
        print(f"  another process is carrying out {run.directory}")
    for directory, words in outcome.failed.items():
        print(f"  failed: {directory}: {words}")
    if outcome.signal is not None:
        raise Interrupted(
            f"Stopped with {counted(outcome.unfinished, 'run')} left, all saved; the same command resumes them.",
            outcome.signal,
        )
    if outcome.failed:
        raise RunStopped(
            f"{counted(len(outcome.failed), 'run')} failed, for the reasons above; once those are fixed, the same "
            "command carries out what is left"
        )
    if outcome.unfinished or outcome.elsewhere:
        left = counted(outcome.unfinished + len(outcome.elsewhere), "run")
        print(f"To be continued, with {left} left; the same command carries on.")
        return TO_BE_CONTINUED
    return 0


def seconds_of(text: str) -> float:
    """Seconds, from such as 23h, 90m, 30s."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match:
        raise UsageError(f"--stop-after needs a number with s, m or h, such as 23h, got {text!r}")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match:
        raise UsageError(f"--shard needs I/N, such as 3/10, got {text!r}")
    return int(match[1]), int(match[2])


def _dry_run(plan: Plan, out: Path, cores: int) -> int:
    from neoteny.experiments.estimate import seconds

    for run in plan.runs:
        state = "done" if is_done(out / run.directory, run.config) else "    "
        print(f"  {state}  {run.method:<34} {run.config.env:<30} seed {run.config.seed}  {run.directory}")
    left = tuple(run for run in plan.runs if not is_done(out / run.directory, run.config))
    if not left:
        print("Every run is done.")
        return 0
    print("Measuring each kind of run that is left for a few seconds:")
    needed = seconds(dataclasses.replace(plan, runs=left), cores)
    print(f"About {in_words(needed)} on {counted(cores, 'core')} for {counted(len(left), 'run')}.")
    return 0


def in_words(seconds: float) -> str:
    """A time to one place after the point, in the unit that suits it."""
    unit, size = next((u for u in (("hours", 3600), ("minutes", 60)) if seconds >= u[1]), ("seconds", 1))
    return f"{seconds / size:.1f} {unit}"
