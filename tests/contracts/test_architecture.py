"""The directions of docs/architecture.md: who may import whom, and what importing brings with it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import neoteny

PACKAGE = Path(neoteny.__file__).parent
MAY_IMPORT = {
    "errors": set(),
    "wording": set(),
    "lazy": set(),
    "output": set(),
    "arguments": {"errors", "wording"},
    "replay": {"errors"},
    "networks": set(),
    "worlds": {"errors"},
    "envs": {"errors", "worlds"},
    "snapshot": set(),
    "plasticity": {"networks"},
    "agents": {"errors", "networks"},
    "remedies": {"networks", "agents", "plasticity"},
    "settings": {"replay", "envs", "agents", "remedies"},
    "machine": {"settings"},
    "runs": {"replay", "envs", "snapshot", "agents", "settings", "machine"},
    "measuring": {"networks", "agents", "plasticity", "remedies", "machine", "runs"},
    "training": {"replay", "envs", "agents", "settings", "machine", "runs", "measuring"},
    "integrations": {"replay", "plasticity", "remedies"},
    "report": {"replay", "plasticity", "agents", "remedies", "settings", "runs"},
    "experiments": {"replay", "agents", "envs", "remedies", "settings", "machine", "runs", "training", "report"},
    "testing": {"replay"},
    "theory": {"replay", "plasticity"},
    "lab": {
        *("replay", "networks", "agents", "plasticity", "remedies", "settings", "machine", "runs", "measuring"),
        *("training", "report", "experiments"),
    },
    "bench": {"replay", "envs", "agents", "settings", "machine", "runs", "measuring", "training", "experiments"},
    "demo": {"replay", "worlds", "agents", "settings", "experiments", "report"},
    "commands": {"replay", "agents", "plasticity", "remedies", "settings", "machine", "runs", "measuring", "training"},
    "cli": {"commands", "machine"},
}
MAY_IMPORT["bench"] |= {"integrations", "remedies", "plasticity", "cli"}
MAY_IMPORT["commands"] |= {"report", "experiments", "theory", "demo", "lab"}
"""Each room, and the other rooms of ours that it may import."""
EVERYWHERE = {"errors", "wording", "output", "arguments", "lazy"}
"""What every room may: the errors that a person is shown, their wording, how they are shown, how commands read their
arguments, and names that are loaded when they are used."""


def rooms() -> dict[str, list[Path]]:
    by_room: dict[str, list[Path]] = {}
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if not room.startswith("__"):
            by_room.setdefault(room, []).append(path)
    return by_room


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute here"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize(("room", "paths"), rooms().items())
def test_rooms_import_only_what_they_may(room: str, paths: list[Path]) -> None:
    for path in paths:
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "neoteny" and len(parts) > 1 and parts[1] in rooms():
                assert parts[1] in {room, *EVERYWHERE, *MAY_IMPORT[room]}, f"{path.name} imports {name}"


def test_the_replay_needs_numpy_alone_but_for_the_device_and_tensors() -> None:
    for path in rooms()["replay"]:
        foreign = {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"neoteny"}
        more = {"jax"} if path.parent.name == "device" else {"torch", "jax"} if path.name == "tensors.py" else set()
        assert foreign <= {"numpy", *more}, path.name


def test_importing_takes_numpy_and_the_replay_alone() -> None:
    code = "import sys; before = set(sys.modules); import neoteny; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name.split(".") for name in run.stdout.split()]
    assert {parts[0] for parts in loaded} - set(sys.stdlib_module_names) == {"neoteny", "numpy"}
    assert {parts[1] for parts in loaded if parts[0] == "neoteny" and len(parts) > 1} <= {"replay", "errors", "lazy"}


def test_every_public_name_is_there() -> None:
    for name in neoteny.__all__:
        assert getattr(neoteny, name) is not None


def test_inspecting_a_run_takes_no_jax(tmp_path: Path) -> None:
    neoteny.train(
        neoteny.TrainConfig("Pendulum-v1", total_timesteps=10, eval_every=0), out=tmp_path / "run", quiet=True
    )
    code = (
        "import sys; from neoteny.cli import main; status = main(['inspect', sys.argv[1]]); "
        "print('LOADED', *({'jax', 'flax', 'gymnasium'} & set(sys.modules))); sys.exit(status)"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "run"], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "LOADED"


def code_lines(path: Path) -> list[str]:
    """The lines of a file that do something: no imports, docstrings, comments or lone brackets."""
    tree = ast.parse(path.read_text())
    passed_over: set[int] = set()
    for node in ast.walk(tree):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, (ast.Import, ast.ImportFrom)) or text:
            passed_over |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [line.strip() for number, line in enumerate(path.read_text().splitlines(), 1) if number not in passed_over]
    return [line for line in lines if any(map(str.isalnum, line)) and not line.startswith("#")]


def test_agents_do_not_repeat_each_other() -> None:
    """No six lines in a row of one agent stand in another: what they share has a file of its own."""
    agents = {path.name: code_lines(path) for path in (PACKAGE / "agents").glob("*.py")}
    runs = {name: {tuple(lines[i : i + 6]) for i in range(len(lines) - 5)} for name, lines in agents.items()}
    names = sorted(runs)
    for index, name in enumerate(names):
        for other in names[index + 1 :]:
            assert not runs[name] & runs[other], f"{name} and {other} share {runs[name] & runs[other]}"


def test_no_function_of_an_agent_is_too_long_to_read() -> None:
    lengths = {
        f"{path.name}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in (PACKAGE / "agents").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length >= 150} == {}
