"""The page's snippets and the example run; the benchmark measures what the page reports."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from neoteny.bench.rllib import rllib_rows

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("cluster")


def test_snippets_run() -> None:
    page = ROOT / "docs" / "integrations" / "rllib.md"
    names: dict[str, object] = {"__name__": page.stem}
    snippets = re.findall(r"^```python needs-rllib\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) == 2
    for snippet in snippets:
        exec(compile(snippet, str(page), "exec"), names)
    names["algorithm"].stop()


def test_the_example_trains(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "rllib_dqn.py"))
    assert example["main"](["--steps", "1500"]) > 5
    assert "steps   mean return" in capsys.readouterr().out


def test_links_lead_somewhere() -> None:
    page = ROOT / "docs" / "integrations" / "rllib.md"
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_every_row_of_the_page_is_measured() -> None:
    page = (ROOT / "docs" / "integrations" / "rllib.md").read_text()
    rows = rllib_rows(rounds=1)
    assert [name for name, _, _ in rows] == re.findall(r"^\| (.+?) \| 100,000 \|", page, re.MULTILINE)
    assert all(theirs > 0 and ours > 0 for _, theirs, ours in rows)
