"""Threads for maths and the device, which are fixed before JAX first computes anything. No JAX is imported here."""

from __future__ import annotations

import os
import sys

from neoteny.errors import UsageError
from neoteny.settings.config import TrainConfig


def limit_threads(config: TrainConfig) -> None:
    """Fix the number of maths threads and the device, which must happen before JAX first computes anything."""
    wanted = str(config.num_threads)
    if _jax_has_started():
        in_force = str(threads_in_force())
        if config.threads is not None and in_force != wanted:
            raise UsageError(
                f"threads={wanted} cannot be set once JAX has computed something, with {in_force} threads: set "
                f"PJRT_NPROC={wanted} before, or leave threads out"
            )
        import jax

        if config.device not in ("auto", jax.default_backend()):
            raise UsageError(f"device={config.device} cannot be set once JAX has started on {jax.default_backend()}")
        return
    os.environ["PJRT_NPROC"] = wanted
    if config.device != "auto":
        os.environ["JAX_PLATFORMS"] = "cuda" if config.device == "gpu" else "cpu"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def threads_in_force() -> int:
    """The maths threads that JAX runs with, or would."""
    return int(os.environ.get("PJRT_NPROC", len(os.sched_getaffinity(0))))


def _jax_has_started() -> bool:
    if "jax" not in sys.modules:
        return False
    from jax._src import xla_bridge  # the public API does not say

    return bool(xla_bridge.backends_are_initialized())
