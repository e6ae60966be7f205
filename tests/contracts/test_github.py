"""GitHub's workflows and templates, against the schemas that come with check-jsonschema: nothing is downloaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patience import HANG

ROOT = Path(__file__).parents[2]
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
KINDS = {
    "vendor.github-workflows": sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    "custom.github-workflows-require-timeout": sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    "vendor.github-issue-forms": FORMS,
    "vendor.github-issue-config": [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


def check(schema: str, files: list[Path]) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).parent / "check-jsonschema"
    command = [tool, "--builtin-schema", schema, *files]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=HANG)


@pytest.mark.parametrize("schema", KINDS)
def test_files_are_what_github_takes(schema: str) -> None:
    assert KINDS[schema]
    checked = check(schema, KINDS[schema])
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_wrong_workflow_would_be_found(tmp_path: Path) -> None:
    text = KINDS["vendor.github-workflows"][0].read_text()
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(text.replace("runs-on:", "run-on:"))
    assert wrong.read_text() != text
    assert check("vendor.github-workflows", [wrong]).returncode == 1


def test_workflows_call_targets_that_exist() -> None:
    targets = {line.split(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if "##" in line}
    for workflow in KINDS["vendor.github-workflows"]:
        called = [line.split("make ")[1] for line in workflow.read_text().splitlines() if "run: make " in line]
        assert called
        for words in called:
            assert set(words.split(" PYTHON")[0].split()) <= targets
