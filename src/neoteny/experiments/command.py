"""``neoteny sweep`` and ``neoteny reproduce``: what they take, and what they say."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from neoteny.arguments import Parser
from neoteny.errors import Interrupted, RunStopped, UsageError
from neoteny.experiments.cores import usable_cores
from neoteny.experiments.plan import SCALES, Plan, load_plan
from neoteny.experiments.sweep import Outcome, sweep
from neoteny.experiments.work import is_done
from neoteny.report.scores import AT_LEAST, LAST
from neoteny.wording import counted

TO_BE_CONTINUED = 75
"""The exit status of a sweep that was stopped by --stop-after, with runs left: start it again."""


def main(prog: str, argv: list[str]) -> int:
    """Carry out a plan."""
    parser = Parser(prog=f"neoteny {prog}", description=__doc__)
    parser.add_argument("plan", help="a .toml file, or a plan of ours such as swd/fig2; neoteny claims lists them")
    parser.add_argument("--scale", choices=SCALES, default="full", help="the plan's own, or one for a laptop (full)")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where the runs are (runs)")
    parser.add_argument("--launcher", choices=("cores", "ray"), default="cores", help="where they run (cores)")
    parser.add_argument("--address", help="of a Ray cluster; auto for the one this machine belongs to")
    parser.add_argument("--jobs", type=int, help="processes at once; as many as there are cores to use")
    parser.add_argument("--shard", help="I/N: only the I-th of N parts, for job arrays")
    parser.add_argument("--stop-after", help="save everything and stop after this long, such as 23h, 90m or 30s")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and how long they will take")
    options = parser.parse_args(argv)
    if options.address and options.launcher != "ray":
        raise UsageError("--address is for --launcher ray")
    plan = load_plan(options.plan, options.scale)
    if options.shard:
        plan = plan.shard(*_shard(options.shard))
    stop_after = seconds_of(options.stop_after) if options.stop_after else None
    cores = usable_cores()
    if options.jobs is not None:
        if not 1 <= options.jobs <= len(cores):
            raise UsageError(f"--jobs must be in 1..{len(cores)}, the cores that may be used, got {options.jobs}")
        cores = cores[: options.jobs]
    print(describe(plan, options.out))
    if options.dry_run:
        return _dry_run(plan, options.out, len(cores))
    if options.launcher == "ray":
        from neoteny.experiments.on_ray import sweep_on_ray

        outcome = sweep_on_ray(plan, options.out, options.address, stop_after)
    else:
        outcome = sweep(plan, options.out, cores, stop_after)
    status = conclude(outcome, plan, options.out)
    if status == 0 and prog == "reproduce":
        _report(plan, options)
    return status


def _report(plan: Plan, options: argparse.Namespace) -> None:
    """The page, once every run is there; of a part of the plan, how to make it."""
    folder = options.out / "report" / f"{plan.name.replace('/', '-')}-{plan.scale}"
    if options.shard:
        words = f"{options.out} --plan {options.plan} --scale {plan.scale} --out {folder}"
        print(f"Once every part is done: neoteny report {words}")
        return
    from neoteny.experiments.reporting import report_plan

    report_plan(plan, [options.out], folder)


def describe(plan: Plan, out: Path) -> str:
    """A plan in a few lines."""
    lines = [f"{plan.name}, {plan.scale} scale: {plan.title}"]
    if plan.paper:
        lines.append(f"  the paper: {plan.paper}")
    if plan.reduced:
        lines.append(f"  reduced: {plan.reduced}")
    lines.append(f"  score of a run: its mean return over the last {LAST:.0%} of evaluations, at least {AT_LEAST}")
    done = sum(is_done(out / run.directory) for run in plan.runs)
    lines.append(f"  {counted(len(plan.runs), 'run')}, {done} of them done, in {out}")
    return "\n".join(lines)


def conclude(outcome: Outcome, plan: Plan, out: Path) -> int:
    """Say what became of it; the exit status."""
    done = len(outcome.before) + len(outcome.done)
    print(f"Done in {out}: {done} of {counted(len(plan.runs), 'run')}, {len(outcome.done)} of them now.")
    for run in outcome.elsewhere:
        print(f"  under way in another process: {run.directory}")
    for directory, words in outcome.failed.items():
        print(f"  failed: {directory}: {words}")
    again = "the same command goes on"
    if outcome.signal is not None:
        raise Interrupted(
            f"Stopped with {counted(outcome.unfinished, 'run')} left, all saved; {again}.", outcome.signal
        )
    if outcome.failed:
        raise RunStopped(f"{counted(len(outcome.failed), 'run')} failed twice; {again} once that is mended")
    if outcome.unfinished or outcome.elsewhere:
        print(f"To be continued, with {counted(outcome.unfinished + len(outcome.elsewhere), 'run')} left; {again}.")
        return TO_BE_CONTINUED
    return 0


def seconds_of(text: str) -> float:
    """Seconds, from such as 23h, 90m, 30s."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found:
        raise UsageError(f"--stop-after needs a number with s, m or h, such as 23h, got {text!r}")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found:
        raise UsageError(f"--shard needs I/N, such as 3/10, got {text!r}")
    return int(found[1]), int(found[2])


def _dry_run(plan: Plan, out: Path, cores: int) -> int:
    from neoteny.experiments.estimate import hours

    for run in plan.runs:
        state = "done" if is_done(out / run.directory) else "    "
        print(f"  {state}  {run.method:<34} {run.config.env:<30} seed {run.config.seed}  {run.directory}")
    print("Measuring each kind of run for a few seconds:")
    needed = hours(plan, cores)
    print(f"About {needed:.1f} hours on {counted(cores, 'core')} for {counted(len(plan.runs), 'run')}.")
    return 0
