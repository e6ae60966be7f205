"""The page: one HTML file with everything in it, that asks nothing of any other machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from neoteny import __version__
from neoteny.report import words
from neoteny.report.charts import Figure, chart
from neoteny.report.gather import Report
from neoteny.report.shapes import Section, looks
from neoteny.report.tables import Table, shown
from neoteny.report.verdict import Finding
from neoteny.wording import counted

MOODS = {"reproduced": "good", "better": "good", "refuted": "bad", "worse": "bad"}
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""What the browser may load: nothing that is not in the page."""


def page(report: Report, tables: Sequence[Table]) -> str:
    """A report as HTML."""
    from plotly.offline import get_plotlyjs

    here = files("neoteny.report")
    figures: list[Figure] = []
    body = [_verdicts(report), *(_section(section, report, figures) for section in report.sections)]
    body += [_tables(tables), _method(report)]
    data = _for_script(json.dumps(figures, separators=(",", ":"), allow_nan=False))
    plotly = get_plotlyjs().replace("</script", "<\\/script")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(report.about.title)}</title>
<link rel="icon" href="data:,">
<style>{(here / "page.css").read_text("utf-8")}</style>
</head>
<body>
{_header(report)}
<main>
{"".join(body)}
</main>
<footer><div>Made by neoteny {__version__} with rliable and Plotly. This file is whole: it loads nothing.</div></footer>
<script type="application/json" id="figures">{data}</script>
<script>{plotly}</script>
<script>{(here / "page.js").read_text("utf-8")}</script>
</body>
</html>
"""


def _for_script(data: str) -> str:
    """JSON, all of it ASCII, inside of a script: no text in it can end the script or begin a comment."""
    return data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _header(report: Report) -> str:
    about = report.about
    links = [("verdicts", "Verdicts"), *((s.name, s.title) for s in report.sections if not s.folded)]
    links += [("tables", "Tables"), ("method", "How it was computed")]
    said = f"<p>{escape(about.said)}</p>" if about.said else ""
    scale = f" · {about.scale} scale" if about.scale else ""
    over = escape(about.name + scale if about.name else "runs without a plan")
    tasks = len({record.task for record in report.records})
    done = sum(record.done for record in report.records)
    planned = f" of {sum(about.planned.values())} planned" if about.planned else ""
    runs = f"{done}{planned} runs" if planned else counted(done, "run")
    counts = f"{runs} finished, {counted(len(report.methods), 'method')}, {counted(tasks, 'task')}."
    nav = "".join(f'<a href="#{escape(name)}">{escape(title)}</a>' for name, title in links)
    return f"""<header><div>
<div class="over">{over}</div>
<h1>{escape(about.title)}</h1>
{said}<p class="soft">{escape(counts)} {escape(about.footnote)}</p>
<nav>{nav}</nav>
</div></header>"""


def _verdicts(report: Report) -> str:
    cards = "".join(_card(finding, report) for finding in report.findings)
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    none = "" if cards else "<p>No two methods are compared here, so there is no verdict.</p>"
    return f"""<section id="verdicts"><h2>Verdicts</h2>
{none}<div class="claims">{cards}</div>{f"<ul>{notes}</ul>" if notes else ""}</section>
"""


def _card(finding: Finding, report: Report) -> str:
    gain = words.percent(finding.test.gain) if finding.test else "no number yet"
    of = "<small>of the baseline's mean</small>" if finding.test else ""
    lines = [
        finding.why,
        words.detectable(finding) if MOODS.get(finding.outcome) is None else "",
        words.paper(finding, report.about),
        report.about.footnote,
    ]
    verdict = words.outcome(finding, report.about)
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
    about_numbers = f'<p class="soft">{escape(words.evidence(finding))}</p>'
    return f"""<article class="claim {MOODS.get(finding.outcome, "")}">
<div class="head"><h3>{escape(words.comparison(finding))}</h3><span class="pill">{escape(verdict)}</span></div>
<p class="number">{escape(gain)} {of}</p>{about_numbers}{paragraphs}</article>
"""


def _section(section: Section, report: Report, figures: list[Figure]) -> str:
    styles = looks(report.methods)
    panels = []
    for panel in section.panels:
        figures.append(chart(panel, styles))
        head = f"<h3>{escape(panel.title)}</h3>" if panel.title else ""
        panels.append(
            f'<figure>{head}<div class="plot" data-figure="{len(figures) - 1}"></div>'
            f"<figcaption>{escape(report.about.footnote)}</figcaption></figure>"
        )
    lone = " lone" if len(panels) == 1 else ""
    inside = f'<p class="text">{escape(section.text)}</p><div class="panels{lone}">{"".join(panels)}</div>'
    if section.folded:
        return f'<details id="{escape(section.name)}"><summary>{escape(section.title)}</summary>{inside}</details>\n'
    return f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>{inside}</section>\n'


def _tables(tables: Sequence[Table]) -> str:
    shown_tables = [table for table in tables if table.rows and table.name != "verdicts"]
    return (
        '<section id="tables"><h2>Tables</h2><p class="text">The same as CSV and LaTeX, the figures as PDF, SVG and '
        "PNG, lie beside this page in tables/ and figures/.</p>" + "".join(map(_table, shown_tables)) + "</section>\n"
    )


def _table(table: Table) -> str:
    right = ["" if isinstance(value, str) else ' class="right"' for value in table.rows[0]]
    head = "".join(f"<th{side}>{escape(name)}</th>" for name, side in zip(table.columns, right, strict=True))
    rows = "".join(
        "<tr>"
        + "".join(f"<td{side}>{escape(shown(value))}</td>" for value, side in zip(row, right, strict=True))
        + "</tr>"
        for row in table.rows
    )
    opened = "" if len(table.rows) > 12 else " open"
    return (
        f'<details{opened}><summary>{escape(table.title)}</summary><div class="scroll"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div></details>"
    )


def _method(report: Report) -> str:
    sentences = "".join(f"<li>{escape(line)}</li>" for line in words.method(report.about))
    return f'<section id="method"><h2>How it was computed</h2><ul>{sentences}</ul></section>\n'
