"""Sampled arrays as tensors of torch or JAX, without a copy where the library can use the memory as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from numpy.typing import NDArray

Kind = Literal["numpy", "torch", "jax"]
Convert = Callable[[NDArray[Any]], Any]


def converter(kind: str, reused: bool) -> Convert:
    """Return the function that makes a tensor of an array.

    torch's tensors always share the array's memory. JAX shares only whole, aligned arrays, which pixels can be; fields
    of packed rows are copied.

    Args:
        kind: one of "numpy", "torch" and "jax".
        reused: whether the caller will write to the array again, so that JAX, whose arrays never change, must copy it.
    """
    match kind:
        case "numpy":
            return lambda array: array
        case "torch":
            import torch

            return torch.from_numpy
        case "jax":
            import jax

            return (lambda array: jax.numpy.array(array, copy=True)) if reused else jax.device_put
    raise ValueError(f"as_ must be one of {', '.join(get_args(Kind))}, got {kind!r}")
