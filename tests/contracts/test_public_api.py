"""The public API: what each package exports is in a committed list, and our own documents import nothing else.

After a change that is meant: ``python tests/contracts/test_public_api.py > tests/contracts/public_api.txt``.
"""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "neoteny",
    "neoteny.agents",
    "neoteny.plasticity",
    "neoteny.remedies",
    "neoteny.replay",
    "neoteny.report",
    "neoteny.theory",
    "neoteny.training",
)
"""Packages whose ``__all__`` users may rely on."""
MODULES = (
    "neoteny.integrations.flashbax",
    "neoteny.integrations.rllib",
    "neoteny.integrations.sb3",
    "neoteny.integrations.torchrl",
    "neoteny.plasticity.flax",
    "neoteny.plasticity.torch",
    "neoteny.remedies.by_hand",
    "neoteny.replay.device",
    "neoteny.testing",
    "neoteny.worlds",
)
"""Modules that bring a framework with them, or that are for one purpose: users import them by name."""


def exported() -> list[str]:
    """Every public name, with the package that exports it."""
    return [f"{package}.{name}" for package in PACKAGES for name in sorted(importlib.import_module(package).__all__)]


def test_what_is_public_is_what_the_list_says() -> None:
    listed = (Path(__file__).parent / "public_api.txt").read_text().split()
    assert exported() == listed


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_there_and_is_documented(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__doc__
    for name in module.__all__:
        assert getattr(module, name) is not None


def snippets() -> list[tuple[str, str]]:
    """The Python of README, docs and examples."""
    sources = [(path.name, path.read_text()) for path in (ROOT / "examples").glob("*.py")]
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        sources += [(path.name, code) for code in re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)]
    return sources


def test_documents_and_examples_import_only_what_is_public() -> None:
    for name, code in snippets():
        for node in ast.walk(ast.parse(textwrap.dedent(code))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("neoteny"):
                public = (*exported(), *MODULES)
                inside = all(f"{node.module}.{alias.name}" in public for alias in node.names)
                assert node.module in MODULES or inside, f"{name}: {ast.unparse(node)}"


if __name__ == "__main__":
    print("\n".join(exported()))
