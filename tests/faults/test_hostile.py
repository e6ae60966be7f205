"""A run from a stranger: whatever its files say, one sentence or the right result; nothing outside it is touched."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_damage import tiny

import neoteny
from neoteny.errors import UsageError
from neoteny.runs import files
from neoteny.runs.checkpoint import digests, load, put_back
from neoteny.runs.manifest import read_manifest, sealed
from neoteny.runs.records import read_config, read_lines
from neoteny.runs.session import restore
from neoteny.settings.config import TrainConfig
from neoteny.snapshot.generators import restore_generator, restore_random_state
from neoteny.training.setup import set_up
from patience import HANG

NEWEST = f"{300:012}.json"
OPENED: list[str] = []
"""Every path that Python opens, in the order of opening."""
sys.addaudithook(lambda event, arguments: OPENED.append(str(arguments[0])) if event == "open" else None)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints at 200 and 300 steps."""
    run = neoteny.train(tiny(total_timesteps=200), out=tmp_path_factory.mktemp("hostile") / "run", quiet=True)
    return neoteny.resume(run, steps=300, quiet=True)


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


@pytest.fixture
def outside(tmp_path: Path, original: Path) -> Iterator[Path]:
    """A folder of the user's that looks like a run, of which nothing may be read, written or removed."""
    folder = Path(shutil.copytree(original, tmp_path / "outside"))
    (folder / "precious").write_text("mine")
    before = tree(folder)
    yield folder
    assert tree(folder) == before


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def facts_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "checkpoint" / NEWEST).read_bytes())["checkpoint"]


def hostile_manifests(facts: dict[str, Any], outside: Path) -> Iterator[bytes]:
    """Manifests whose checksum fits, each with one part that no checkpoint has, and some that are none at all."""
    names = ["/dev/full", "/dev/zero", "/etc/passwd", "../config.json", "..", "", ".", "a\0b", "segments", "x" * 5_000]
    names += [
        str(outside / "precious"),
        "../../outside/precious",
        "segments/../../config.json",
        "000000000300.npz/../x",
    ]
    values: list[Any] = [
        None,
        True,
        -1,
        1.5,
        10**15 + 1,
        10**30,
        float("nan"),
        float("inf"),
        "5",
        [],
        {},
        [[]],
        "é\ud800",
    ]
    for name in facts:
        changed = dict(facts)
        del changed[name]
        if name != "forever":  # which older versions did not write
            yield sealed(changed)
        for value in values:
            if (name, value) not in (("forever", True), ("segments", []), ("config", {})) and value != facts[name]:
                yield sealed({**facts, name: value})
    for name in names:
        yield sealed({**facts, "file": name})
        for number in range(len(facts["segments"])):
            changed = copy.deepcopy(facts)
            changed["segments"][number]["file"] = name
            yield sealed(changed)
    for part in ("first", "stop", "sha256", "file"):
        for value in values:
            changed = copy.deepcopy(facts)
            changed["segments"][0][part] = value
            if changed != facts:
                yield sealed(changed)
    yield sealed({**facts, "segments": []})
    yield sealed({**facts, "segments": facts["segments"] * 1_000})
    yield sealed({**facts, "segments": facts["segments"][::-1] + facts["segments"]})
    yield sealed({**facts, "more": 1})
    yield sealed({**facts, "step": 200})
    yield sealed({**facts, "clock": facts["clock"] + 1})
    yield sealed({**facts, "first_needed": facts["clock"] + 1})
    for text in (
        "",
        "[]",
        "null",
        "5",
        '"x"',
        "{}",
        "[" * 100_000,
        "9" * 10_000,
        '{"checkpoint": 1}',
        '{"sha256": []}',
    ):
        yield text.encode()
    yield b"\xff\xfe" * 40
    yield b'{"checkpoint": ' + b"[" * 50_000 + b"]" * 50_000 + b', "sha256": ""}'


def test_hostile_manifests(run: Path, outside: Path) -> None:
    """The checkpoint before is used, or none; nothing but files of the run is opened."""
    facts, path = facts_of(run), run / "checkpoint" / NEWEST
    _, older, _ = _without_newest(run)
    tried = 0
    OPENED.clear()
    for data in hostile_manifests(facts, outside):
        path.write_bytes(data)
        with pytest.raises(files.Damaged):
            read_manifest(path)
        checkpoint, part_digests, complaints = digests(run)
        assert (checkpoint.step, part_digests) == (200, older)
        assert len(complaints) == 1
        assert complaints[0].startswith("the checkpoint at step 300 cannot be used: ")
        assert len(complaints[0]) < 600
        tried += 1
    assert tried > 150
    strange = {name for name in OPENED if "outside" in name or name.startswith(("/dev/full", "/dev/zero", "/etc/pass"))}
    assert not strange


def _without_newest(run: Path) -> Any:
    moved = (run / "checkpoint" / NEWEST).rename(run / "kept")
    fallback = digests(run)
    moved.rename(run / "checkpoint" / NEWEST)
    return fallback


def test_a_hostile_manifest_at_the_command_line(run: Path, outside: Path) -> None:
    for path in (run / "checkpoint").glob("*.json"):
        facts = json.loads(path.read_bytes())["checkpoint"]
        facts["segments"][0]["file"] = str(outside / "precious")
        path.write_bytes(sealed(facts))
    before = tree(run)
    words = [sys.executable, "-m", "neoteny", "resume", str(run), "--steps", "400"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2
    assert "which no checkpoint has" in done.stderr
    assert "Traceback" not in done.stderr
    after = tree(run)
    assert {name: after[name] for name in before if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }


@pytest.fixture(scope="module")
def ready(original: Path) -> Any:
    """Everything that a resume makes before it reads a checkpoint, and what is in the newest one."""
    config, facts = read_config(original)
    setup, session = set_up(config, None, None, facts["environment"]["horizon"])
    loaded: list[Any] = []
    load(original, lambda checkpoint, state: loaded.extend([checkpoint, state]))
    return setup, session, *loaded


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a tree, inner ones too."""
    yield path
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, part in parts:
        yield from leaves(part, (*path, name))


def replaced(tree: Any, path: tuple[Any, ...], new: Callable[[Any], Any]) -> Any:
    if not path:
        return new(tree)
    changed = dict(tree) if isinstance(tree, dict) else list(tree)
    changed[path[0]] = replaced(tree[path[0]], path[1:], new)
    return changed


def test_hostile_states(ready: Any, original: Path) -> None:
    """Any part of a state is another thing: refused in one sentence, or harmless, and the right one still works."""
    setup, session, checkpoint, state = ready
    rng = random.Random(0)
    ways = list(leaves(state))
    others: list[Callable[[Any], Any]] = [
        *(lambda _, value=value: value for value in (None, -1, 10**30, 1.5, float("nan"), "x", [], {}, [[]], True)),
        *(lambda _, shape=shape: np.zeros(shape) for shape in ((), (0,), (3, 3, 3), (1, 100_000))),
        lambda old: old[..., :0] if isinstance(old, np.ndarray) and old.ndim else {"kind": "mujoco", "class": "x"},
        lambda old: old.astype(np.int16) if isinstance(old, np.ndarray) else {"kind": "generator", "state": {}},
        lambda old: {**old, "step": 5} if isinstance(old, dict) else [old],
        lambda old: dict(list(old.items())[1:]) if isinstance(old, dict) else old,
    ]
    refused = 0
    for number in range(400):
        path = ways[number % len(ways)] if number < len(ways) else rng.choice(ways)
        hostile = replaced(state, path, rng.choice(others))
        try:
            restore(session, setup.agent, setup.remedies, hostile, checkpoint.step)
            put_back(original, checkpoint, hostile["replay"], session.buffer)
        except files.Damaged:
            refused += 1
    assert refused > 250
    assert restore(session, setup.agent, setup.remedies, state, checkpoint.step)
    put_back(original, checkpoint, state["replay"], session.buffer)
    assert session.buffer.clock == checkpoint.clock


def test_new_episodes_do_not_read_the_environments(run: Path) -> None:
    (run / "DONE").unlink()
    for path in (run / "checkpoint").glob("*.json"):
        facts = json.loads(path.read_bytes())["checkpoint"]
        state = run / "checkpoint" / facts["file"]
        tree = files.decode(state.read_bytes())
        state.write_bytes(files.encode({**tree, "envs": [{"kind": "hostile"}]}))
        path.write_bytes(sealed({**facts, "sha256": files.checksum(state.read_bytes())}))
    with pytest.raises(UsageError, match="its environment's state cannot be restored"):
        neoteny.resume(run, steps=310, quiet=True)
    neoteny.resume(run, steps=310, new_episodes=True, quiet=True)
    assert any("episodes_restarted" in line for line in read_lines(run / "metrics.jsonl"))


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        for name, data in members.items():
            zipped.writestr(f"{name}.npy", data)
    return file.getvalue()


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    "member",
    [
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,)}"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000, 1000000)}", bytes(64)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -4)}", bytes(16)),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", bytes(16)),
        npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", bytes(8)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "(" * 60 + ")"),
        npy("5"),
        b"\x93NUMPY\x09\x00",
        b"",
    ],
)
def test_an_array_is_no_larger_than_its_bytes(member: bytes) -> None:
    good = files.encode({"a": np.arange(3)})
    with zipfile.ZipFile(io.BytesIO(good)) as whole:
        text = whole.read("json.npy")
    with pytest.raises(files.Damaged):
        files.decode(archive(**{"json": text, "0": member}))


def test_a_compressed_archive_is_refused() -> None:
    file = io.BytesIO()
    np.savez_compressed(file, json=np.zeros(100_000_000, np.uint8))
    with pytest.raises(files.Damaged, match="is compressed"):
        files.decode(file.getvalue())


LINKS = (
    "lock config.json metrics.jsonl timing.jsonl tensorboard policy policy/policy.npz checkpoint checkpoint/segments "
    f"checkpoint/{NEWEST}"
).split()


@pytest.mark.parametrize("name", [*LINKS, "state", "segment"])
def test_a_link_is_not_followed(name: str, run: Path, outside: Path) -> None:
    facts = facts_of(run)
    name = {"state": f"checkpoint/{facts['file']}", "segment": f"checkpoint/{facts['segments'][-1]['file']}"}.get(
        name, name
    )
    path = run / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(outside / name)
    with pytest.raises(UsageError, match=r"is a symbolic link, and in a run it is a (file|folder): remove it"):
        neoteny.resume(run, steps=400, quiet=True)


def test_links_that_would_be_written_through(run: Path, outside: Path) -> None:
    (run / "DONE").unlink()
    for name in ("config.json.tmp", f"checkpoint/{400:012}.json.tmp", "policy/policy.npz.tmp", "video.mp4"):
        (run / name).symlink_to(outside / "precious")
    (run / "checkpoint" / "other").symlink_to(outside)
    neoteny.resume(run, steps=400, quiet=True)
    assert not (run / "policy" / "policy.npz.tmp").is_symlink()


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl", f"checkpoint/{NEWEST}"])
def test_a_pipe_is_not_waited_for(name: str, run: Path) -> None:
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    with pytest.raises(UsageError, match="is a device or pipe"):
        neoteny.resume(run, steps=400, quiet=True)


@pytest.mark.parametrize("copies", ["{} (conflicted copy).json", "{}~.json", "{}.json.bak", "7{}-1.npz", "{}-x-y.npz"])
def test_a_stray_copy_in_the_checkpoint_is_left_alone(copies: str, run: Path) -> None:
    (run / "DONE").unlink()
    stray = run / "checkpoint" / copies.format(f"{300:012}")
    stray.write_bytes((run / "checkpoint" / NEWEST).read_bytes())
    (run / "checkpoint" / "segments" / stray.name).write_bytes(b"")
    neoteny.resume(run, steps=310, quiet=True)
    assert stray.exists()
    assert (run / "checkpoint" / "segments" / stray.name).exists()


@pytest.mark.parametrize("position", [-1, 625, 2**31, 2**63, 1.5, None, "0"])
def test_a_generators_position_is_not_believed(position: Any) -> None:
    """NumPy would read its memory there."""
    twister = np.random.RandomState(0).get_state(legacy=False)
    assert isinstance(twister, dict)
    philox: Any = np.random.Philox(0).state
    with pytest.raises(ValueError, match="MT19937 has positions from 0 to 624"):
        restore_random_state({**twister, "state": {**twister["state"], "pos": position}}, None)
    with pytest.raises(ValueError, match="Philox has positions from 0 to 4"):
        restore_generator({**philox, "buffer_pos": position}, None)


ATTACK = """
import copy, sys
import gymnasium as gym, numpy as np
from neoteny import snapshot

def simulation(tree):
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    if isinstance(tree, dict) and tree.get("kind") == "mujoco":
        return tree
    return next(filter(None, map(simulation, parts)), None)

def place(packed, name):
    for one in packed.values():
        start = 0
        for found, size in one["sizes"]:
            if found == name:
                return one["values"], start, start + size
            start += size

env = gym.make("Ant-v5")
env.reset(seed=0)
good = snapshot.save(env)
def attack(change):
    state = copy.deepcopy(good)
    change(simulation(state))
    try:
        snapshot.restore(env, state)
    except ValueError as error:
        print(str(error).splitlines()[0][:100])
    else:
        print("taken")
    for _ in range(5):
        env.step(env.action_space.sample())

INDICES = (
    "jnt_dofadr body_parentid jnt_qposadr geom_bodyid dof_Madr M_colind actuator_trnid geom_type jnt_type geom_condim"
)
def index(part, name, value):
    def change(found):
        values, start, stop = place(found[part], name)
        values[start:stop] = value
    attack(change)

for name in INDICES.split():
    for value in (10**9, -10**9):
        index("model", name, value)
print("---")
for name in "moment_colind moment_rowadr moment_rownnz dof_awake_ind tree_asleep body_awake_ind".split():
    for value in (10**9, -10**9):
        index("data", name, value)
print("---")
for name, value in {"cone": 7, "integrator": 99, "solver": -1, "ccd_iterations": 2**31 - 1, "enableflags": -1}.items():
    attack(lambda found: found["options"][0].update({name: value}))
attack(lambda found: found["scalars"].update(ncon=10**6))
attack(lambda found: found["scalars"].update(time=float("nan")))
attack(lambda found: found["options"][0].update(gravity=np.zeros(2)))
attack(lambda found: found["model"]["float64"].update(values=found["model"]["float64"]["values"][:-1]))
attack(lambda found: found["model"]["int32"]["sizes"].append(["x", 1]))
attack(lambda found: found["model"]["float64"]["values"].fill(np.nan))
attack(lambda found: found.update({"class": "mujoco._structs.MjModel"}))
snapshot.restore(env, good)
"""


def test_hostile_indices_do_not_reach_mujoco(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ATTACK], capture_output=True, text=True, timeout=HANG, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2_000:])
    model, data, rest = (part.split("\n") for part in done.stdout.strip().split("\n---\n"))
    assert all("than the environment that was made here" in line for line in model)
    assert len(model) == 20
    assert data == ["taken"] * 12  # and computed again, not believed
    assert "taken" not in rest


def test_a_hostile_simulation_is_one_sentence(tmp_path: Path) -> None:
    """The whole way: a run on Hopper whose checkpoint has been rewritten with fitting checksums."""
    run = neoteny.train(tiny_hopper(), out=tmp_path / "run", quiet=True)
    for path in (run / "checkpoint").glob("*.json"):
        facts = json.loads(path.read_bytes())["checkpoint"]
        state = run / "checkpoint" / facts["file"]
        tree = files.decode(state.read_bytes())
        way = next(way for way in leaves(tree) if way[-2:] == ("int32", "values") and "model" in way)
        state.write_bytes(files.encode(replaced(tree, way, lambda old: np.full_like(old, 10**9))))
        path.write_bytes(sealed({**facts, "sha256": files.checksum(state.read_bytes())}))
    words = [sys.executable, "-m", "neoteny", "resume", str(run), "--steps", "60"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2, (done.returncode, done.stderr[-500:])
    assert "of its MuJoCo model" in done.stderr or "its MuJoCo model has another" in done.stderr
    assert "Traceback" not in done.stderr


def tiny_hopper() -> TrainConfig:
    return dataclasses.replace(tiny(total_timesteps=40), env="Hopper-v5")
