"""What a type checker knows of the public names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import neoteny

SNIPPET = """
import neoteny

reveal_type(neoteny.TrainConfig)
reveal_type(neoteny.train)
reveal_type(neoteny.resume)
reveal_type(neoteny.load_policy)
reveal_type(neoteny.load_runs)
neoteny.trian
"""


def test_names_that_are_loaded_when_first_used_have_types(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(SNIPPET)
    source = str(Path(neoteny.__file__).parents[1])
    # Without other people's packages: only our own names are looked at, and it takes seconds.
    options = ["--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent", "--cache-dir=cache"]
    command = [sys.executable, "-m", "mypy", "--config-file=", *options, "snippet.py"]
    shown = subprocess.run(command, cwd=tmp_path, env={"MYPYPATH": source}, capture_output=True, text=True).stdout
    revealed = [line.split("Revealed type is ")[1] for line in shown.splitlines() if "Revealed type is" in line]
    assert len(revealed) == len(neoteny._LAZY) == 5, shown
    assert all(kind.startswith('"def (') for kind in revealed), shown
    assert "config: neoteny.settings.config.TrainConfig" in revealed[1]
    assert 'Module has no attribute "trian"' in shown
