"""A replay in segments on disk, against the buffer it came from: wrapped, cut, with frames, at any moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neoteny as n
from neoteny.runs import checkpoint, files
from neoteny.runs.checkpoint import Checkpoints
from neoteny.runs.manifest import Checkpoint


class Frames:
    """Environments whose every frame is new, with short episodes."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.stacks = np.stack([self.new() for _ in range(num_envs)])

    def new(self) -> np.ndarray:
        return np.repeat(self.rng.integers(0, 256, (1, 2, 3), dtype=np.uint8), 3, axis=0)

    def step(self) -> dict[str, Any]:
        count = len(self.stacks)
        after = np.concatenate([self.stacks[:, 1:], self.rng.integers(0, 256, (count, 1, 2, 3), np.uint8)], axis=1)
        ended = self.rng.random(count) < 0.15
        row = {
            "obs": self.stacks,
            "next_obs": after,
            "reward": self.rng.normal(size=count),
            "terminated": ended,
            "truncated": np.zeros(count, bool),
        }
        self.stacks = np.stack([self.new() if ended[i] else after[i] for i in range(count)])
        return row

    def restart(self) -> None:
        self.stacks = np.stack([self.new() for _ in self.stacks])


FIELDS = {"reward": (), "terminated": n.Field((), np.bool_), "truncated": n.Field((), np.bool_)}


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize(
    "sampler", [n.AgeWeightedSampler(n.LinearDecay(9)), n.PrioritizedSampler()], ids=["swd", "per"]
)
@pytest.mark.parametrize("segment_bytes", [60, 100_000])
def test_whenever_it_is_saved_it_comes_back(
    num_envs: int, sampler: Any, segment_bytes: int, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(checkpoint, "SEGMENT_BYTES", segment_bytes)
    (tmp_path / "metrics.jsonl").touch()

    def new(seed: int) -> n.ReplayBuffer:
        fields = {"obs": n.Frames((2, 3), 3, finals=8), **FIELDS}
        return n.ReplayBuffer(20, fields, sampler, num_envs=num_envs, n_step=2, gamma=0.9, seed=seed)

    one, envs, checkpoints = new(0), Frames(num_envs, 0), Checkpoints(tmp_path)
    rng = np.random.default_rng(1)
    for step in range(60):
        for _ in range(int(rng.integers(1, 7))):
            one.add(**envs.step())
            checkpoints.spill(one)
        if step % 7 == 3:
            one.cut()
            checkpoints.amend(one.clock - num_envs)
            envs.restart()
        batch = one.sample(5)
        if isinstance(sampler, n.PrioritizedSampler):
            one.update_priorities(batch, rng.random(5))
        checkpoints.save({"step": step}, one, step, 0, {})
        other = restored(tmp_path, new(2))
        assert other.clock == one.clock
        following = envs.step()
        twin, again = restored(tmp_path, new(3)), restored(tmp_path, new(4))
        for buffer in (twin, again):
            buffer.add(**following)
        held, expected = other.gather(np.arange(len(other))), one.gather(np.arange(len(one)))
        one.add(**following)
        for name in expected:
            np.testing.assert_array_equal(held[name], expected[name])
        a, b, c = one.sample(8), twin.sample(8), again.sample(8)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
            np.testing.assert_array_equal(a[name], c[name])
    assert one.clock > 4 * 20


def restored(directory: Path, buffer: n.ReplayBuffer) -> n.ReplayBuffer:
    def use(manifest: Checkpoint, state: dict[str, Any]) -> None:
        checkpoint.put_back(directory, manifest, state["replay"], buffer)

    checkpoint.load(directory, use)
    return buffer


def test_a_save_at_the_same_step_spares_the_one_before(tmp_path: Path, monkeypatch: Any) -> None:
    """Until the new one is whole: a disk that fills up between its two files loses nothing."""
    (tmp_path / "metrics.jsonl").touch()
    buffer = n.ReplayBuffer(20, n.transition_fields((2,), (1,)), n.AgeWeightedSampler(n.Uniform()), seed=0)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"which": 1}, buffer, 200, 0, {})
    plain = checkpoint.write

    def full(path: Path, data: bytes) -> None:
        if path.suffix == ".json":
            raise OSError(28, "No space left on device")
        plain(path, data)

    monkeypatch.setattr(checkpoint, "write", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save({"which": 2}, buffer, 200, 0, {})
    seen = []
    checkpoint.load(tmp_path, lambda manifest, state: seen.append(state["which"]))
    assert seen == [1]


def test_trees_come_back_as_they_were() -> None:
    tree = {
        "arrays": [np.arange(3, dtype=np.int8), np.zeros((0, 2), np.float32), np.array(True)],
        "text": ["array 0", "string x", ""],
        "numbers": {"large": 2**100, "nan": float("nan"), "none": None, "yes": True},
    }
    back = files.decode(files.encode(tree))
    assert files.digest(back) == files.digest(tree)
    assert back["text"] == tree["text"]
    assert back["numbers"]["large"] == 2**100
    assert back["arrays"][1].shape == (0, 2)
    assert files.digest({**tree, "text": []}) != files.digest(tree)
