"""A pytest plugin: flashbax's own tests of its item buffer, pointed at ours."""

from __future__ import annotations

from typing import Any

import flashbax.buffers.item_buffer as item_buffer
import jax

from neoteny.integrations.flashbax import make_age_weighted_item_buffer

sampled = False


def ours(
    max_length: int, min_length: int, sample_batch_size: int, add_sequences: bool = False, add_batches: bool = False
) -> Any:
    """Its arguments; how many environments there are is seen in the first batch, which its tests do not say before."""

    def make(num_envs: int | None) -> Any:
        sizes = (max_length, min_length, sample_batch_size, add_sequences, add_batches)
        return make_age_weighted_item_buffer(*sizes, num_envs=num_envs, decay_steps=100)

    buffer = make(1 if add_batches else None)

    def add(state: Any, batch: Any) -> Any:
        nonlocal buffer
        if add_batches:
            buffer = make(jax.tree.leaves(batch)[0].shape[0])
        return buffer.add(state, batch)

    def sample(state: Any, key: Any) -> Any:
        global sampled
        sampled = True
        return buffer.sample(state, key)

    return buffer.replace(add=add, sample=sample)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """So that the test which runs this knows that its plugin was at work."""
    if sampled:
        terminalreporter.write_line("ours was sampled")


item_buffer.make_item_buffer = ours
