"""Other libraries' prioritised buffers, measured beside ours where they are installed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Case = Callable[[], object]


def cpprb(size: int, fields: dict[str, tuple[int, ...]], batch_size: int, errors: np.ndarray) -> tuple[Case, Case]:
    """cpprb: a uniform sample, and a prioritised sample with its update."""
    from cpprb import PrioritizedReplayBuffer, ReplayBuffer

    env = {name: {"shape": shape or 1, "dtype": np.float32} for name, shape in fields.items()}
    uniform, prioritised = ReplayBuffer(size, env), PrioritizedReplayBuffer(size, env, alpha=0.6, eps=1e-6)
    rng = np.random.default_rng(0)
    for start in range(0, size, 100_000):
        count = min(100_000, size - start)
        rows = {name: rng.random((count, *(shape or (1,))), np.float32) for name, shape in fields.items()}
        uniform.add(**rows)
        prioritised.add(**rows, priorities=rng.exponential(size=count) ** 3)

    def sample_and_update() -> None:
        batch = prioritised.sample(batch_size, beta=0.4)
        prioritised.update_priorities(batch["indexes"], errors)

    return lambda: uniform.sample(batch_size), sample_and_update


def torchrl(size: int, fields: dict[str, tuple[int, ...]], batch_size: int, errors: np.ndarray) -> tuple[Case, Case]:
    """TorchRL: the same two."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer, TensorDictReplayBuffer

    uniform = TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=batch_size)
    prioritised = TensorDictPrioritizedReplayBuffer(
        alpha=0.6, beta=0.4, storage=LazyTensorStorage(size), batch_size=batch_size
    )
    for start in range(0, size, 100_000):
        count = min(100_000, size - start)
        rows = TensorDict({name: torch.rand(count, *shape) for name, shape in fields.items()}, batch_size=[count])
        uniform.extend(rows)
        prioritised.extend(rows)

    def sample_and_update() -> None:
        batch = prioritised.sample()
        batch["td_error"] = torch.as_tensor(errors)
        prioritised.update_tensordict_priority(batch)

    return lambda: uniform.sample(), sample_and_update


PEERS = {"cpprb": cpprb, "TorchRL": torchrl}
