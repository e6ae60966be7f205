"""Snippets of the README and the docs run, links inside the project lead somewhere, install lines can work."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for snippet in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(snippet, str(page), "exec", dont_inherit=True), names)  # as it would run in a file of its own


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("folder", ["README.md", "docs", "examples", "src"])
def test_neoteny_is_installed_from_a_clone(folder: str) -> None:
    """It is on no registry, so `pip install 'neoteny[sb3]'` cannot work: `pip install '.[sb3]'` in a clone does.

    Every such line says that it is for a clone, and names extras that exist. In the code there is one such line.
    """
    top = ROOT / folder
    places = set()
    for path in [top] if top.is_file() else [*top.rglob("*.md"), *top.rglob("*.py")]:
        for line in path.read_text().splitlines():
            assert not re.search(r"pip install .*\bneoteny\b", line), f"{path.name}: {line}"
            if re.search(r"pip install '?\.", line):
                places.add(path.name)
                assert "clone" in line, f"{path.name}: {line}"
                for extras in re.findall(r"\.\[([\w,]+)\]", line):
                    assert set(extras.split(",")) <= EXTRAS, f"{path.name}: {line}"
    assert places
    if folder == "src":
        assert places == {"errors.py"}
