"""A report on disk: index.html, figures/ and tables/."""

from __future__ import annotations

from pathlib import Path

from neoteny.errors import missing_extra
from neoteny.report.gather import Report
from neoteny.report.shapes import looks
from neoteny.runs.files import write as write_file


def write_report(report: Report, out: Path) -> Path:
    """Write all of it into `out`; the page's path."""
    try:
        from neoteny.report.figures import write_figures
        from neoteny.report.page import page
        from neoteny.report.tables import tables_of, write_tables

        tables = tables_of(report)
        out.mkdir(parents=True, exist_ok=True)
        write_file(out / "index.html", page(report, tables).encode())
        write_tables(tables, out / "tables")
        write_figures(report.sections, looks(report.methods), report.about.footnote, out / "figures")
    except ImportError as error:
        raise missing_extra("the report", "report", error) from error
    return out / "index.html"
