"""Damaged files, a full disk, what is edited or in use: a sentence each, and nothing lost that could be kept."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neoteny
from killing import same
from neoteny.agents.configs import TD3Config
from neoteny.errors import UsageError
from neoteny.remedies import Injection
from neoteny.runs.inspect import describe, facts_of
from neoteny.runs.run import read_lines
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training import checkpoint, files
from patience import HANG

REPLAY = ReplayConfig("swd", decay_steps=200, capacity=1_000)
NO_PROBES = PlasticityConfig(probe_every=0)
"""Compiling them would take most of the time of these tests."""


def tiny(**options: Any) -> TrainConfig:
    agent = TD3Config((16,), batch_size=16, learning_starts=100)
    settings = {
        "agent": agent,
        "replay": REPLAY,
        "total_timesteps": 300,
        "eval_every": 0,
        "log_every": 50,
        "plasticity": NO_PROBES,
    }
    return TrainConfig("Pendulum-v1", **{"checkpoint_every": 1e9, **settings, **options})


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of 300 steps that went on to 500 and then 700, and one that was trained for 900 at once."""
    folder = tmp_path_factory.mktemp("damage")
    neoteny.train(tiny(), out=folder / "run", quiet=True)
    neoteny.resume(folder / "run", steps=500, quiet=True)
    neoteny.resume(folder / "run", steps=700, quiet=True)
    neoteny.train(tiny(total_timesteps=900), out=folder / "whole", quiet=True)
    return folder / "run", folder / "whole"


@pytest.fixture
def run(stopped: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped[0], tmp_path / "run"))


def manifests(run: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes())["checkpoint"] for path in sorted((run / "checkpoint").glob("*.json"))]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def test_a_run_that_went_on_twice_equals_one_that_did_not(stopped: tuple[Path, Path], run: Path) -> None:
    neoteny.resume(run, steps=900, quiet=True)
    same(run, stopped[1])
    assert facts_of(run)["done"]


@pytest.mark.parametrize("damage", [flip, cut_short, Path.unlink])
@pytest.mark.parametrize("which", ["state", "own segment", "manifest"])
def test_the_checkpoint_before_is_used(
    damage: Any, which: str, stopped: tuple[Path, Path], run: Path, capsys: Any
) -> None:
    older, newer = manifests(run)
    assert (older["step"], newer["step"]) == (500, 700)
    own = [segment["file"] for segment in newer["segments"] if segment not in older["segments"]]
    file = {"state": newer["file"], "own segment": own[0], "manifest": f"{700:012}.json"}[which]
    damage(run / "checkpoint" / file)
    if which == "manifest" and damage is Path.unlink:
        neoteny.resume(run, steps=900, quiet=True)
    else:
        assert "the checkpoint at step 700 cannot be used" in describe(facts_of(run))
        neoteny.resume(run, steps=900, quiet=True)
        said = capsys.readouterr().err
        assert "the checkpoint at step 700 cannot be used" in said
        assert Path(file).name in said
    lives = [line["first_step"] for line in read_lines(run / "timing.jsonl") if "life" in line]
    assert lives == [0, 300, 500, 500]
    same(run, stopped[1])


@pytest.mark.parametrize("damage", [flip, cut_short, Path.unlink])
def test_a_segment_that_both_need(damage: Any, run: Path) -> None:
    older, newer = manifests(run)
    shared = next(segment for segment in newer["segments"] if segment in older["segments"])
    before = {path: path.stat().st_size for path in run.rglob("*") if path.is_file()}
    damage(run / "checkpoint" / shared["file"])
    lost = f"transitions {shared['first']:,} to {shared['stop'] - 1:,} are lost"
    with pytest.raises(UsageError, match=f"step 700 cannot be used.*{lost}.*step 500 cannot be used.*neoteny evaluate"):
        neoteny.resume(run, steps=900, quiet=True)
    assert lost in describe(facts_of(run))
    after = {path for path in run.rglob("*") if path.is_file()}
    assert after >= before.keys() - {run / "checkpoint" / shared["file"]}  # nothing was removed
    neoteny.load_policy(run)(np.zeros(3, np.float32))


def test_only_two_checkpoints_and_what_they_need_are_kept(run: Path) -> None:
    neoteny.resume(run, steps=2_500, quiet=True)
    older, newer = manifests(run)
    named = {segment["file"] for made in (older, newer) for segment in made["segments"]} | {
        older["file"],
        newer["file"],
    }
    folder = run / "checkpoint"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.npz")} == named
    assert newer["first_needed"] == 1_500
    assert all(segment["stop"] > 1_500 for segment in newer["segments"])


def test_a_pickle_is_never_read(run: Path, tmp_path: Path) -> None:
    """Not even with a checksum that fits: a checkpoint from a stranger runs no code."""

    class Trap:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "sprung"),))

    newer = manifests(run)[-1]
    state = run / "checkpoint" / newer["file"]
    np.savez(state, json=np.array([Trap()], object), allow_pickle=True)
    newer["sha256"] = files.checksum(state.read_bytes())
    (run / "checkpoint" / f"{700:012}.json").write_bytes(checkpoint._seal(newer))
    neoteny.resume(run, steps=720, quiet=True)
    assert not (tmp_path / "sprung").exists()
    with pytest.raises(files.Damaged):
        files.decode(state.read_bytes() if state.exists() else pickle.dumps(Trap()))


def test_a_changed_configuration_is_refused(run: Path) -> None:
    facts = json.loads((run / "config.json").read_text())
    facts["config"]["agent"]["tau"] = 0.5
    (run / "config.json").write_text(json.dumps(facts))
    with pytest.raises(UsageError, match=r"config.json was changed.*agent.tau is 0.5 and was 0.005"):
        neoteny.resume(run, steps=900, quiet=True)


def test_another_version_is_refused_or_logged(run: Path) -> None:
    facts = json.loads((run / "config.json").read_text())
    facts["versions"]["optax"] = "0.0.1"
    (run / "config.json").write_text(json.dumps(facts))
    with pytest.raises(UsageError, match=r"other versions \(optax 0.0.1, now .*--allow-version-change"):
        neoteny.resume(run, steps=900, quiet=True)
    neoteny.resume(run, steps=720, quiet=True, allow_version_change=True)
    life = [line for line in read_lines(run / "timing.jsonl") if "life" in line][-1]
    assert life["changed_versions"][0].startswith("optax 0.0.1, now ")


def test_a_finished_run_says_so(run: Path) -> None:
    with pytest.raises(UsageError, match="is done, with 700 steps: --steps with more goes on"):
        neoteny.resume(run, quiet=True)
    with pytest.raises(UsageError, match="--steps must be at least the run's 700, got 600"):
        neoteny.resume(run, steps=600, quiet=True)


def test_a_run_in_use_is_refused(run: Path) -> None:
    code = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'a+'); fcntl.flock(f, 2); "
        "f.write('held'); f.flush(); print(1, flush=True); time.sleep(60)"
    )
    (run / "lock").write_text("")
    holder = subprocess.Popen([sys.executable, "-c", code, str(run / "lock")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(UsageError, match="is in use by process held: wait for it, or stop it"):
        neoteny.resume(run, steps=900, quiet=True)
    holder.kill()
    holder.communicate()
    neoteny.resume(run, steps=720, quiet=True)


def test_a_run_killed_before_its_first_checkpoint_begins_again(stopped: tuple[Path, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "lock").touch()  # killed before there was anything else: train may take the directory
    whole = neoteny.train(tiny(total_timesteps=120), out=run, quiet=True)
    early = tmp_path / "early"
    early.mkdir()
    shutil.copy(whole / "config.json", early)
    neoteny.resume(early, quiet=True)
    same(early, whole)


@pytest.mark.parametrize("name", ["checkpoint/notes.json", "checkpoint/segments/.nfs0001", "checkpoint/segments/x.npz"])
def test_strange_files_are_left_alone(name: str, run: Path) -> None:
    (run / name).write_text("strange")
    neoteny.resume(run, steps=720, quiet=True)
    assert (run / name).read_text() == "strange"


def test_a_damaged_config_is_one_sentence(run: Path) -> None:
    (run / "config.json").write_text('{"config": ')
    with pytest.raises(UsageError, match=r"config.json is damaged"):
        neoteny.resume(run, steps=900, quiet=True)


def test_a_longer_run_has_no_line_for_the_end_of_the_shorter(tmp_path: Path) -> None:
    run = neoteny.train(tiny(total_timesteps=310), out=tmp_path / "run", quiet=True)
    assert read_lines(run / "metrics.jsonl")[-1]["step"] == 310
    neoteny.resume(run, steps=330, quiet=True)
    same(run, neoteny.train(tiny(total_timesteps=330), out=tmp_path / "whole", quiet=True))


def test_when_checkpoints_fall_changes_nothing(tmp_path: Path) -> None:
    """Not even the last line of metrics, with priorities that are told late."""
    replay = ReplayConfig("per", capacity=1_000)
    often, never = (
        neoteny.train(tiny(total_timesteps=310, replay=replay, checkpoint_every=every), out=tmp_path / name, quiet=True)
        for name, every in (("often", 1e-9), ("never", 0))
    )
    assert (often / "metrics.jsonl").read_bytes() == (never / "metrics.jsonl").read_bytes()


def test_spilled_segments_that_nothing_needs_go(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(checkpoint, "SEGMENT_BYTES", 4_000)
    most = 0
    plain = checkpoint.Checkpoints.spill

    def spill(self: Any, buffer: Any) -> None:
        nonlocal most
        plain(self, buffer)
        most = max(most, len(list((tmp_path / "run" / "checkpoint" / "segments").iterdir())))

    monkeypatch.setattr(checkpoint.Checkpoints, "spill", spill)
    replay = ReplayConfig("swd", decay_steps=200, capacity=500)
    run = neoteny.train(tiny(total_timesteps=3_000, replay=replay), out=tmp_path / "run", quiet=True)
    rows = 4_000 // 44  # of Pendulum: 3 + 1 + 1 + 3 + 2 numbers, and the discount is left out
    assert most <= 500 // rows + 4
    assert len(manifests(run)) == 2


def test_no_checkpoint_and_none_asked_for(tmp_path: Path) -> None:
    run = neoteny.train(tiny(checkpoint_every=0, total_timesteps=120), out=tmp_path / "run", quiet=True)
    with pytest.raises(UsageError, match="has no checkpoint to go on from"):
        neoteny.resume(run, steps=900, quiet=True)


FULL = """
import resource, signal, sys
import neoteny
from neoteny.training.start import resume
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
resume(sys.argv[1], steps=int(sys.argv[3]), quiet=True)
"""


def test_a_disk_that_takes_no_checkpoint(stopped: tuple[Path, Path], run: Path) -> None:
    """Files may not grow past a limit, which a checkpoint's exceed: the run goes on to its end, and says so."""
    before = {path: path.read_bytes() for path in (run / "checkpoint").rglob("*") if path.is_file()}
    limit = (run / "metrics.jsonl").stat().st_size + 8_000
    larger = [path for path in before if path.stat().st_size > limit]
    assert larger, "the limit stops nothing"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(run), str(limit), "720"], capture_output=True, text=True, timeout=HANG
    )
    assert "No checkpoint could be made at step 720 (File too large); the one before is whole." in done.stderr
    assert "the end of the run could not be saved; saved at step 700, to go on with" in done.stderr
    assert all(path.read_bytes() == data for path, data in before.items())
    neoteny.resume(run, steps=900, quiet=True)
    same(run, stopped[1])


def test_a_full_disk(stopped: tuple[Path, Path], tmp_path: Path) -> None:
    """A file system with no room left: whatever happens, the last checkpoint is whole."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = sum(path.stat().st_size for path in stopped[0].rglob("*")) + 40_000
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)], capture_output=True
    ).returncode:
        pytest.skip("no right to mount a small file system here")
    try:
        run = Path(shutil.copytree(stopped[0], disk / "run"))
        (disk / "filler").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - 4_096)))
        words = [sys.executable, "-m", "neoteny", "resume", str(run), "--steps", "900"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=HANG)
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        (disk / "filler").unlink()
        assert not (run / "DONE").exists()
        moved = Path(shutil.copytree(run, tmp_path / "moved"))
        neoteny.resume(moved, steps=900, quiet=True)
        same(moved, stopped[1])
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_checkpoint_costs_what_is_new(tmp_path: Path) -> None:
    """The second checkpoint of a buffer of many rows writes only the rows since the first."""
    run = neoteny.train(tiny(total_timesteps=900), out=tmp_path / "run", quiet=True)
    written = {path.name for path in (run / "checkpoint" / "segments").iterdir()}
    neoteny.resume(run, steps=910, quiet=True)
    new = [path for path in (run / "checkpoint" / "segments").iterdir() if path.name not in written]
    assert [path.name.split("-", 1)[1] for path in new] == [f"{900:012}-{910:012}.npz"]
    assert written <= {path.name for path in (run / "checkpoint" / "segments").iterdir()}


def contents(run: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != "lock" and "tensorboard" not in path.parts
    }


def test_a_longer_run_injects_when_the_first_would_have(tmp_path: Path) -> None:
    plasticity = PlasticityConfig(probe_every=0)
    run = neoteny.train(
        tiny(total_timesteps=250, plasticity=plasticity, remedies=(Injection(),)), out=tmp_path / "run", quiet=True
    )
    neoteny.resume(run, steps=600, quiet=True)
    assert (run / "DONE").exists()
    assert [line["updates"] for line in read_lines(run / "metrics.jsonl") if "remedy" in line] == [75]


def test_a_resume_that_cannot_set_up_changes_nothing(run: Path, monkeypatch: Any) -> None:
    before = contents(run)

    def no_disk(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    def no_environment() -> Any:
        raise RuntimeError("the simulator does not start")

    import tensorboardX

    with monkeypatch.context() as broken:
        broken.setattr(tensorboardX, "SummaryWriter", no_disk)
        with pytest.raises(OSError, match="No space left"):
            neoteny.resume(run, steps=900, quiet=True)
    with pytest.raises(Exception, match="the simulator does not start"):
        neoteny.resume(run, steps=900, make_env=no_environment, quiet=True)
    assert contents(run) == before
    assert neoteny.resume(run, steps=900, quiet=True) == run


def test_kept_checkpoints_stay_and_can_be_resumed_from(tmp_path: Path) -> None:
    config = tiny(total_timesteps=400, keep_checkpoints=4)
    run = neoteny.train(config, out=tmp_path / "run", quiet=True)
    assert [made["step"] for made in manifests(run)] == [100, 200, 300, 400]
    neoteny.resume(run, steps=600, quiet=True)
    kept = [(made["step"], made["forever"]) for made in manifests(run)]
    assert kept == [(100, True), (200, True), (300, True), (400, True), (500, True), (600, True)]
    whole = neoteny.train(tiny(total_timesteps=600), out=tmp_path / "whole", quiet=True)
    same(run, whole)
    for path in sorted((run / "checkpoint").glob("*.json"))[2:]:
        path.unlink()
    (run / "DONE").unlink()
    again = neoteny.resume(run, quiet=True)
    same(again, whole)


def test_checkpoints_that_are_not_made_cannot_be_kept() -> None:
    with pytest.raises(UsageError, match="--keep-checkpoints 4 needs checkpoints, and --checkpoint-every 0 makes none"):
        tiny(keep_checkpoints=4, checkpoint_every=0)
