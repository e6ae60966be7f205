"""Batches as tensors of torch and JAX: the same numbers, and whose memory they are in."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch

import neoteny


def filled(sampler: Any = None, fields: dict[str, Any] | None = None) -> neoteny.ReplayBuffer:
    fields = neoteny.transition_fields(obs_shape=(3,), action_shape=(2,)) if fields is None else fields
    buffer = neoteny.ReplayBuffer(64, fields, sampler or neoteny.AgeWeightedSampler(decay_steps=20), seed=0)
    rng = np.random.default_rng(1)
    for _ in range(40):
        step = {"obs": rng.normal(size=(1, 3)), "next_obs": rng.normal(size=(1, 3)), "action": rng.normal(size=(1, 2))}
        buffer.add(**step, reward=rng.normal(size=1), terminated=rng.random(1) < 0.5, truncated=np.zeros(1, bool))
    return buffer


@pytest.mark.parametrize(("kind", "tensor"), [("torch", torch.Tensor), ("jax", jax.Array), ("numpy", np.ndarray)])
def test_the_same_seed_gives_the_same_numbers(kind: Any, tensor: type) -> None:
    ours, theirs = filled().sample(16), filled().sample(16, as_=kind)
    assert set(theirs) == set(ours)
    for name in ours:
        assert isinstance(theirs[name], tensor)
        assert np.asarray(theirs[name]).dtype == ours[name].dtype
        np.testing.assert_array_equal(np.asarray(theirs[name]), ours[name])


def test_torchs_tensors_are_the_batchs_memory() -> None:
    batch = filled().sample(16, as_="torch")
    batch["obs"][:] = 7.0
    np.testing.assert_array_equal(filled().layout.unpack(batch.rows, "obs"), np.full((16, 3), 7.0))


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_weights_are_tensors_and_priorities_can_be_told(kind: Any) -> None:
    buffer, twin = (filled(neoteny.PrioritizedSampler()) for _ in range(2))
    batch, plain = buffer.sample(16, as_=kind), twin.sample(16)
    assert isinstance(batch.weights, torch.Tensor if kind == "torch" else jax.Array)
    np.testing.assert_allclose(np.asarray(batch.weights), plain.weights, rtol=1e-6)
    buffer.update_priorities(batch, batch["reward"])
    twin.update_priorities(plain, plain["reward"])
    np.testing.assert_array_equal(buffer.sample(16).positions, twin.sample(16).positions)


def test_a_jax_array_never_changes_though_the_rows_are_used_again() -> None:
    """A batch of one, whose fields are whole, in memory that JAX would take as it is."""
    buffer = filled()
    memory = np.empty(buffer.layout.width + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    out = memory[start : start + buffer.layout.width].reshape(1, -1)
    first = buffer.sample(1, out=out, as_="jax")["obs"]
    before = np.array(first, copy=True)
    out[:] = 7.0
    np.testing.assert_array_equal(first, before)


def test_an_unknown_kind_is_refused_before_anything_is_drawn() -> None:
    buffer = filled()
    with pytest.raises(ValueError, match=r"as_ must be one of numpy, torch, jax, got 'pytorch'"):
        buffer.sample(16, as_="pytorch")  # type: ignore[arg-type]
    np.testing.assert_array_equal(buffer.sample(16).positions, filled().sample(16).positions)
