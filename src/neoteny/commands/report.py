"""``neoteny report``: the page of runs, with the claims of a plan if one is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from neoteny.arguments import Parser
from neoteny.errors import UsageError, missing_extra
from neoteny.experiments.plan import SCALES, Plan, PlannedRun, load_plan
from neoteny.experiments.work import is_done
from neoteny.report.about import About
from neoteny.report.archive import archived_in
from neoteny.report.gather import Report, default_claims, findings_of, gather
from neoteny.report.scores import read_runs
from neoteny.report.verdict import Claim, Finding
from neoteny.report.words import sentence
from neoteny.report.write import write_report
from neoteny.runs.run import is_run, read_config

DESCRIPTION = """Write a page with a verdict in words, figures and tables from runs or archives of runs. With --plan the
names and claims of that plan are used. Example: neoteny report runs --out report"""


def main(argv: list[str]) -> int:
    """Write the report of some runs."""
    parser = Parser("neoteny report", DESCRIPTION)
    parser.add_argument(
        "runs", type=Path, nargs="+", help="directories of runs or archives; tidy .csv files; evaluations.npz"
    )
    parser.add_argument("--plan", help="the plan that they carry out, whose names and claims are then used")
    parser.add_argument("--scale", choices=SCALES, default="full", help="of the plan (full)")
    parser.add_argument("--out", type=Path, default=Path("report"), help="the directory to write (report)")
    options = parser.parse_args(argv)
    if options.plan:
        report_plan(load_plan(options.plan, options.scale), options.runs, options.out)
    else:
        named = ", ".join(path.name or str(path) for path in options.runs)
        publish(_gather_any(options.runs, f"Runs in {named}"), options.out)
    return 0


def report_plan(plan: Plan, places: Sequence[Path], out: Path) -> Path:
    """The report of a plan's runs, wherever among `places` they or their archives are."""
    names = named_runs(plan, places)
    if not names:
        where = ", ".join(map(str, places))
        raise UsageError(f"none of the {len(plan.runs)} runs of {plan.name} at {plan.scale} scale is in {where}")
    try:
        report = gather(read_runs([], names), about(plan), plan_claims(plan))
    except ImportError as error:
        raise missing_extra("the report", "report", error) from error
    return publish(report, out)


def named_runs(plan: Plan, places: Sequence[Path]) -> dict[Path, str]:
    """Return the runs of a plan that are in `places`, in the plan's order: each once, and what the plan calls it.

    A finished run comes before its archive, and both before a run that is not finished.
    """
    archived = [archived_in(place) for place in places]
    names: dict[Path, str] = {}
    for run in plan.runs:
        here = [path for place in places if is_run(path := place / run.directory) and not _made_longer(path, run)]
        kept = [known[name] for known in archived if (name := str(run.directory)) in known]
        done = [path for path in here if is_done(path)]
        names |= {path.resolve(): run.method for path in [*done, *kept, *here][:1]}
    return names


def _made_longer(path: Path, run: PlannedRun) -> bool:
    """Return whether a run was resumed to more steps than the plan has, which makes it another run."""
    return read_config(path)[0].total_timesteps != run.config.total_timesteps


def findings(plan: Plan, places: Sequence[Path]) -> tuple[Finding, ...]:
    """What is known of a plan's claims so far."""
    return findings_of(read_runs([], named_runs(plan, places)), plan_claims(plan), about(plan))


def about(plan: Plan) -> About:
    """What a report says of its plan. A user's own plan has no scale but its own, unless it is the laptop's."""
    planned = Counter((run.method, run.config.env) for run in plan.runs)
    scale = plan.scale if plan.paper or plan.reduced else ""
    return About(plan.title, plan.name, scale, plan.paper, plan.reduced, plan.speaks, planned)


def publish(report: Report, out: Path) -> Path:
    """Write a report, and say what was found."""
    page = write_report(report, out)
    for finding in report.findings:
        print(sentence(finding, report.about))
    for note in report.notes:
        print(note)
    print(f"{report.about.footnote}\nWrote {page}, with figures/ and tables/ beside it.")
    return page


def plan_claims(plan: Plan) -> tuple[Claim, ...]:
    """Return what a plan claims: what its file says, or every method against uniform replay."""
    if plan.claims is not None:
        return plan.claims
    return default_claims(list(dict.fromkeys(run.method for run in plan.runs)))


def _gather_any(places: Sequence[Path], title: str) -> Report:
    try:
        return gather(read_runs(places), About(title))
    except ImportError as error:
        raise missing_extra("the report", "report", error) from error
