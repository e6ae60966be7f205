"""Tables, to CSV and LaTeX."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from neoteny.report import words
from neoteny.report.gather import Report
from neoteny.report.scores import left_out


class Table(NamedTuple):
    """Named columns, and rows of text and numbers."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def tables_of(report: Report) -> list[Table]:
    """Every table of a report: verdicts, scores, aggregates, what counts as 0 and 1, cost, and each run."""
    return [_verdicts(report), _scores(report), _aggregates(report), _bounds(report), _cost(report), _runs(report)]


def _verdicts(report: Report) -> Table:
    numbers_of_test = ("gain", "low", "high", "p", "detectable")
    columns = ("comparison", "verdict", *numbers_of_test, "paper", "runs", "left out", "tasks", "scale")
    rows = []
    for finding in report.findings:
        test = finding.test
        numbers = (test.gain, test.low, test.high, test.p, test.detectable) if test else (math.nan,) * 5
        effect = math.nan if finding.claim.effect is None else finding.claim.effect
        rows.append(
            (
                words.comparison(finding),
                finding.outcome,
                *numbers,
                effect,
                sum(finding.runs),
                len(finding.left_out),
                len(finding.tasks),
                report.about.scale,
            )
        )
    return Table("verdicts", "Verdicts", columns, tuple(rows))


def _scores(report: Report) -> Table:
    lost = Counter((record.task, record.method) for record in left_out(report.records))
    rows = []
    for task in dict.fromkeys([*report.bounds, *(task for task, _ in lost)]):
        for method in report.methods:
            values = report.scores.get(method, {}).get(task, np.empty(0))
            mean = values.mean() if len(values) else math.nan
            spread = values.std(ddof=1) if len(values) > 1 else math.nan
            if len(values) or lost[task, method]:
                rows.append((task, method, len(values), lost[task, method], mean, spread))
    columns = ("task", "method", "runs", "left out", "mean", "standard deviation")
    return Table("scores", "Scores", columns, tuple(rows))


def _aggregates(report: Report) -> Table:
    rows = [
        (suite, name, method, *estimate)
        for suite, by_name in report.aggregates.items()
        for name, by_method in by_name.items()
        for method, estimate in by_method.items()
    ]
    columns = ("suite", "aggregate", "method", "value", "low", "high")
    return Table("aggregates", "Aggregates of normalised scores", columns, tuple(rows))


def _bounds(report: Report) -> Table:
    rows = tuple((task, bound.zero, bound.one, bound.reason) for task, bound in report.bounds.items())
    return Table("normalisation", "What counts as 0 and as 1", ("task", "0", "1", "which are"), rows)


def _cost(report: Report) -> Table:
    rows = []
    for task in report.bounds:
        for method in report.methods:
            here = [r for r in report.records if (r.method, r.task) == (method, task) and r.done and r.seconds > 0]
            if here:
                hours, speed, peak = np.mean([(r.seconds / 3_600, r.steps_per_second, r.peak_mb) for r in here], axis=0)
                rows.append((task, method, len(here), hours, speed, peak))
    columns = ("task", "method", "runs", "hours a run", "steps a second", "peak MB")
    return Table("cost", "Runtime and cost", columns, tuple(rows))


def _runs(report: Report) -> Table:
    lost = left_out(report.records)
    rows = [
        (
            record.method,
            record.task,
            record.seed,
            int(record.steps[-1]) if len(record.steps) else 0,
            math.nan if (score := record.late()) is None else score,
            "not finished" if not record.done else "done" if record not in lost else "done, no finite score",
        )
        for record in report.records
    ]
    return Table("runs", "Runs", ("method", "task", "seed", "last step", "score", "state"), tuple(rows))


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Each as .csv, with every digit, and as .tex."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        path = folder / f"{table.name}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(table.columns)
            writer.writerows(table.rows)
        path.with_suffix(".tex").write_text(latex(table), encoding="utf-8")
        written += [path, path.with_suffix(".tex")]
    return written


def latex(table: Table) -> str:
    """A tabular; numbers to the right."""
    kinds = "".join(
        "l" if isinstance(value, str) else "r" for value in (table.rows or (("",) * len(table.columns),))[0]
    )
    lines = [f"\\begin{{tabular}}{{{kinds}}}", "\\hline", _row(table.columns), "\\hline"]
    lines += [_row([shown(value) for value in row]) for row in table.rows]
    return "\n".join([*lines, "\\hline", "\\end{tabular}", ""])


def _row(cells: Sequence[str]) -> str:
    return " & ".join(_escape(cell) for cell in cells) + r" \\"


_LATEX = {character: f"\\{character}" for character in "&%_#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": "$<$",
    ">": "$>$",
    "[": "{[}",  # after the end of a row LaTeX takes it, and the star, for an option
    "*": "{*}",
}
"""What LaTeX would not print as it is."""


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character if character.isprintable() else " ") for character in text)


def shown(value: object) -> str:
    """A cell as a person reads it."""
    if isinstance(value, float):  # NumPy's are too
        if not math.isfinite(value):
            return "" if math.isnan(value) else "no bound"
        return f"{value:,.0f}" if 10_000 <= abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
