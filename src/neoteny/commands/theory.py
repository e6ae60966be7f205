"""``neoteny theory``: every statement of the paper's theory, checked in numbers, as a table and plots."""

from __future__ import annotations

import json
import re
import textwrap
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from neoteny.arguments import Parser
from neoteny.errors import missing_extra
from neoteny.theory import dynamics, replays, theorems
from neoteny.theory.figures import draw_all
from neoteny.theory.results import Check

SEED = 2026
CHECKS: tuple[Callable[[np.random.Generator], Check], ...] = (
    theorems.proposition_1,
    theorems.theorem_1,
    partial(theorems.theorem_1, soft=True),
    theorems.lemma,
    partial(theorems.lemma, soft=True),
    theorems.theorem_2,
    partial(theorems.theorem_2, soft=True),
    theorems.theorem_2_tight,
    theorems.theorem_2_ascent,
    *(
        partial(check, soft=soft)
        for check in (
            dynamics.theorem_3,
            dynamics.theorem_3_drift,
            dynamics.theorem_3_conditions,
            dynamics.fresh_decay,
        )
        for soft in (False, True)
    ),
    dynamics.raw_norm,
    *(partial(replays.fresh_under, name=name) for name in replays.CLAIMS),
    replays.schedules,
    dynamics.kernel_rank,
    dynamics.saddle_time,
    replays.lifetime,
)
COLUMNS = {"statement": 20, "what it says": 46, "measured": 46, "problems": 8, "held": 5}


def main(argv: list[str]) -> int:
    """Check every statement, write table, numbers and plots, and print the table; 1 if one did not hold."""
    parser = Parser(prog="neoteny theory", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("theory"), help="the directory to write (theory)")
    options = parser.parse_args(argv)
    try:
        import matplotlib  # noqa: F401  # known to be missing before minutes are spent
    except ImportError as error:
        raise missing_extra("drawing", "report", error) from error
    options.out.mkdir(parents=True, exist_ok=True)
    findings = run(show=True)
    pictures = draw_all({finding.name: finding for finding in findings}, options.out)
    (options.out / "table.md").write_text(markdown(findings))
    (options.out / "findings.json").write_text(json.dumps([vars(finding) for finding in findings], indent=1) + "\n")
    print(
        f"\n{table(findings)}\n\nWrote {options.out}: table.md, findings.json, "
        + ", ".join(picture.name for picture in pictures)
    )
    return int(any(finding.held is False for finding in findings))


def run(show: bool = False) -> list[Check]:
    """Every check, each with its own generator, so that one may be run alone and find the same."""
    findings = []
    for index, check in enumerate(CHECKS):
        start = time.perf_counter()
        findings.append(check(np.random.default_rng([SEED, index])))
        if show:
            print(f"  {findings[-1].name}: {time.perf_counter() - start:.1f} s", flush=True)
    return findings


def verdict(finding: Check) -> str:
    """One word."""
    return {True: "yes", False: "NO", None: "-"}[finding.held]


def cells(finding: Check) -> list[str]:
    """A finding as a row."""
    printed = f" [paper: {finding.printed}]" if finding.printed else ""
    return [finding.name, finding.says + printed, finding.measured, f"{finding.problems:,}", verdict(finding)]


def table(findings: Sequence[Check]) -> str:
    """A row for each statement, wrapped to the columns' widths."""
    widths = list(COLUMNS.values())
    lines = [_row(list(COLUMNS), widths), _row(["-" * width for width in widths], widths)]
    for finding in findings:
        wrapped = [textwrap.wrap(cell, width) for cell, width in zip(cells(finding), widths, strict=True)]
        height = max(map(len, wrapped))
        lines += [_row([part[line] if line < len(part) else "" for part in wrapped], widths) for line in range(height)]
    return "\n".join(lines)


def markdown(findings: Sequence[Check]) -> str:
    """The same for a page."""
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *map(cells, findings)]
    escaped = [[re.sub(r"([|*_<])", r"\\\1", cell) for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)


def _row(parts: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{part:<{width}}" for part, width in zip(parts, widths, strict=True)).rstrip()
