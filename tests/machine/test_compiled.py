"""Compiled programs are kept between processes, and damage to them goes unnoticed by users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from neoteny.machine import compiled

RUN = """
import json, sys
import jax
counted = {"hit": 0, "miss": 0}
def count(event, **_):
    for name in counted:
        counted[name] += event == f"/jax/compilation_cache/cache_{name}" + ("s" if name == "hit" else "es")
jax.monitoring.register_event_listener(count)
from neoteny import train
from neoteny.agents.configs import TD3Config
from neoteny.settings.config import PlasticityConfig, TrainConfig
config = TrainConfig("Pendulum-v1", TD3Config(widths=(8,), batch_size=4, learning_starts=5), total_timesteps=20,
                     eval_every=0, checkpoint_every=0, plasticity=PlasticityConfig(probe_every=0))
train(config, out=sys.argv[1], quiet=True)
print(json.dumps(counted))
"""


def run(out: Path, cache: Path, **more: str) -> tuple[dict[str, int], bytes]:
    """Train in a process of its own that takes warnings for errors; the cache's hits and misses, and the metrics."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    completed = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", RUN, str(out)],
        env={**env, "XDG_CACHE_HOME": str(cache), **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert "cache" not in completed.stderr
    return json.loads(completed.stdout), (out / "metrics.jsonl").read_bytes()


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "neoteny" / "compiled").glob("*/*-cache"))


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_a_damaged_entry_is_made_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cold, alone = run(tmp_path / "a", cache)
    assert cold["hit"] == 0
    assert cold["miss"] > 0
    warm, again = run(tmp_path / "b", cache)
    assert warm["miss"] == 0
    assert warm["hit"] == cold["miss"]
    assert again == alone, "what is found again is what was compiled"
    update = next(path for path in entries(cache) if "update" in path.name)
    whole = update.read_bytes()
    update.write_bytes(whole[: len(whole) // 2])
    mended, third = run(tmp_path / "c", cache)
    assert mended == {"hit": cold["miss"] - 1, "miss": 1}
    assert third == alone
    assert compiled._whole(update)
    other, _ = run(tmp_path / "d", cache, PJRT_NPROC="2")
    assert other["hit"] == 0, "another number of threads is another program"


@pytest.mark.slow
def test_where_nothing_can_be_written_it_trains_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    counted, _ = run(tmp_path / "run", tmp_path / "file")
    assert counted == {"hit": 0, "miss": 0}


@pytest.mark.slow
def test_a_cache_of_the_users_own_is_theirs(tmp_path: Path) -> None:
    run(tmp_path / "run", tmp_path / "ours", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "theirs"))
    assert not entries(tmp_path / "ours")


def write_entry(directory: Path, name: str, data: bytes, age: int = 0) -> Path:
    path = directory / f"{name}-cache"
    path.write_bytes(compiled.zlib.compress(data))
    os.utime(path, ns=(10**18 - age, 10**18 - age))
    return path


@pytest.fixture
def _zlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_decompressor", lambda: compiled.zlib.decompress)


@pytest.mark.usefixtures("_zlib")
def test_damage_is_found_at_any_length(tmp_path: Path) -> None:
    whole = compiled.zlib.compress(bytes(range(256)) * 40)
    for length in range(0, len(whole), 7):
        path = tmp_path / "x-cache"
        path.write_bytes(whole[:length])
        compiled.tidy(tmp_path)
        assert not path.exists(), f"{length} bytes of {len(whole)}"


@pytest.mark.usefixtures("_zlib")
def test_the_oldest_go_when_there_is_too_much(tmp_path: Path) -> None:
    kept = [write_entry(tmp_path, f"p{age}", os.urandom(1_000), age) for age in range(5)]
    size = kept[0].stat().st_size
    compiled.tidy(tmp_path, limit=3 * size)
    assert [path.exists() for path in kept] == [True, True, True, False, False]


@pytest.mark.usefixtures("_zlib")
def test_what_was_looked_at_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_entry(tmp_path, "p", b"program")
    compiled.tidy(tmp_path)
    later = compiled.time.time_ns() + 10**10
    monkeypatch.setattr(compiled.time, "time_ns", lambda: later)
    compiled.tidy(tmp_path)
    monkeypatch.setattr(compiled, "_whole", lambda entry: pytest.fail("read again"))
    compiled.tidy(tmp_path)


def test_convolutions_are_not_given_to_the_library_that_uses_one_core() -> None:
    frames, kernel = np.ones((32, 84, 84, 4), np.float32), np.ones((8, 8, 4, 32), np.float32)

    def convolve(frames: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(frames, kernel, (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    program = compiled.compiled(convolve).lower(frames, kernel).compile().as_text()
    assert "convolution(" in program
    assert "ynn_fusion" not in program


def test_options_that_xla_does_not_know_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.compiler_options.cache_clear()
    monkeypatch.setattr(compiled, "CPU_OPTIONS", {"xla_cpu_of_another_version": "1"})
    assert compiled.compiler_options() == {}
    assert compiled.compiled(lambda x: x + 1)(1) == 2
    compiled.compiler_options.cache_clear()
