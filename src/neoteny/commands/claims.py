"""``neoteny claims``: every claim of the paper, and what is known of it here so far, on the terminal or as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from neoteny.arguments import Parser
from neoteny.commands.report import about, findings, named_runs
from neoteny.errors import UsageError
from neoteny.experiments.plan import Plan, instead, load_plan, papers_plans, scales_of
from neoteny.experiments.planned import left_out
from neoteny.experiments.work import is_done
from neoteny.report import words
from neoteny.report.verdict import Finding
from neoteny.runs.files import write

DESCRIPTION = """List every claim of the paper, of our controls, of the programme and of the laboratory, and what the
runs that are here say of it so far. With --page write what archived runs say as a page of Markdown instead, such as
results/README.md."""
PAGE = """# Results

What the runs that are archived in this folder say of each claim. `neoteny claims --page results/README.md` writes this
page from the archives; please do not edit it. [PROGRAMME.md](PROGRAMME.md) says which runs are made, in which order,
and how they are judged; it was decided before the first run. A verdict is given once every planned run is finished;
until then a claim is undecided.

"""
_COLUMNS = ("plan", "comparison", "verdict", "difference", "95% interval", "runs", "scale", "command")


def main(argv: list[str]) -> int:
    """List the claims, and write the page if asked for."""
    parser = Parser("neoteny claims", DESCRIPTION)
    parser.add_argument("--out", type=Path, help="where the runs are (default: runs)")
    parser.add_argument(
        "--archives", type=Path, default=Path("results"), help="where archived runs are (default: results)"
    )
    parser.add_argument("--page", type=Path, help="write a page about the archived runs to this file")
    options = parser.parse_args(argv)
    if options.page and options.out:
        raise UsageError("--page is about archived runs, and --out names others: leave one of them out")
    if options.page:
        write(options.page, page(options.archives).encode())
        print(f"Wrote {options.page}")
        return 0
    print(describe([options.out or Path("runs"), options.archives]))
    return 0


def describe(places: Sequence[Path]) -> str:
    """Return a line or two for each plan: what the paper says, and how many of its runs are done."""
    lines = []
    for name in papers_plans():
        plans = [load_plan(name, scale) for scale in scales_of(name)]
        counts = [f"{_done(plan, places)} of {len(plan.runs)} at {plan.scale} scale" for plan in plans]
        lines.append(f"{name:<22}{plans[0].title}")
        known = [
            f"{words.outcome(finding, about(plan))}: {words.comparison(finding)}, {_gain(finding)} "
            f"({words.evidence(finding)})"
            for plan in plans
            for finding in _known(plan, places)
        ]
        others = [text for plan in plans for text in left_out(plan.runs, places)]
        elsewhere = [f"at {scale} scale: {other}" for scale, other in instead(name).items()]
        said = (f"paper: {plans[0].paper}", f"runs done: {', '.join(counts)}", *elsewhere, *known, *others)
        lines += [f"{'':<22}{text}" for text in said]
    where = " and ".join(map(str, places))
    lines.append(f"\nOne command each: neoteny reproduce NAME [--scale laptop|quick]. Runs are looked for in {where}.")
    return "\n".join(lines)


def page(archives: Path) -> str:
    """Return the page about the archived runs: a line for each claim that any of them speaks of."""
    rows, silent = [], []
    for name in papers_plans():
        for scale in scales_of(name):
            if scale == "quick":  # decides nothing
                continue
            plan = load_plan(name, scale)
            plan_rows = list(_rows(plan, archives))
            rows += plan_rows
            if not plan_rows:
                silent.append(f"{name} ({scale})")
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}", *rows]
    known = "\n".join(lines) if rows else "No run is archived yet."
    rest = f"\n\nNo archived run speaks of these plans yet: {', '.join(silent)}." if silent else ""
    return f"{PAGE}{known}{rest}\n"


def _rows(plan: Plan, archives: Path) -> Iterator[str]:
    for finding in _known(plan, [archives]):
        test = finding.test
        cells = [
            f"`{plan.name}`",
            words.comparison(finding),
            f"{finding.outcome}. {finding.why}".strip(),
            _gain(finding),
            f"{words.percent(test.low)} to {words.percent(test.high)}" if test else "",
            f"{sum(finding.runs)} of {finding.planned}",
            plan.scale,
            f"`neoteny reproduce {plan.name}{f' --scale {plan.scale}' * (plan.scale != 'full')}`",
        ]
        yield f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text as a cell of a table in Markdown."""
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())


def _gain(finding: Finding) -> str:
    return words.percent(finding.test.gain) if finding.test else "no number"


def _known(plan: Plan, places: Sequence[Path]) -> tuple[Finding, ...]:
    """Return what is known of a plan's claims: of those where both methods have runs, finite scores or not."""
    known = findings(plan, places) if _done(plan, places) else ()
    return tuple(finding for finding in known if finding.test is not None or finding.left_out)


def _done(plan: Plan, places: Sequence[Path]) -> int:
    return sum(path.is_file() or is_done(path) for path in named_runs(plan, places))
