"""The neural tangent kernel's Gram matrix K_ij = <grad f(x_i), grad f(x_j)>; SWD (ICLR 2026), Section 4.1.

K is the sum of its layers' Gram matrices, each found from what goes into the layer and from the deltas, the gradients
of f(x_i) at what comes out of it, before any activation. No Jacobian is built: for a critic of 4.25 million parameters
and 128 samples it would take 2.2 GB. f is one number: one backward pass of its sum over samples gives all deltas. The
first axis is always that of the n samples; the result is (n, n). The paper argues about K and does not measure it.

Plain formulas for NumPy and JAX arrays alike, inside ``jax.jit`` too; a torch tensor is passed as ``.numpy()``. NumPy
arrays are summed in float64, JAX's as they come. Prefer the former where small eigenvalues matter: sums in float32 lose
those under n 1e-7 of the largest, though the activations, in float32 too, tell far smaller ones apart (`gram_metrics`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from neoteny.plasticity.norms import namespace
from neoteny.plasticity.rank import effective_rank, eigenvalues, srank


class GramMetrics(NamedTuple):
    """What is measured of a Gram matrix."""

    effective_rank: float
    srank: float
    trace: float
    condition_number: float


def dense_gram(inputs: Any, deltas: Any, bias: bool = True) -> Any:
    """(A A^T) o (D D^T), + D D^T with a bias: a dense layer of `inputs` A (n, d_in) and `deltas` D (n, d_out)."""
    a, d = _wide(inputs), _wide(deltas)
    return (a @ a.T + float(bias)) * (d @ d.T)


def spectral_gram(inputs: Any, deltas: Any, kernel: Any, sigma: Any, left: Any, right: Any) -> Any:
    """A dense layer with a bias of x W / sigma, sigma = left^T W right the largest singular value of `kernel` W.

    The gradient of each sample for W is (G - <G, W / sigma> left right^T) / sigma, G = x d^T, with its inputs x and
    deltas d as for `dense_gram`.
    """
    a, d = _wide(inputs), _wide(deltas)
    along = ((a @ _wide(kernel)) * d).sum(axis=1) / sigma
    first = (a @ _wide(left)) * (d @ _wide(right))
    crossed = along[:, None] * (along - first) - first[:, None] * along
    return ((a @ a.T) * (d @ d.T) + crossed) / sigma**2 + d @ d.T


def scaler_gram(inputs: Any, deltas: Any) -> Any:
    """S S^T with S = D o x: a vector that multiplies its `inputs` x (n, d), with `deltas` D (n, d)."""
    s = _wide(deltas) * _wide(inputs)
    return s @ s.T


def layer_norm_gram(normalised: Any, deltas: Any) -> Any:
    """S S^T + D D^T with S = D o xhat: scale and bias of a LayerNorm, y = scale o xhat + bias.

    `normalised` is xhat (n, d), before scale and bias; `deltas` D (n, d) are taken at y. With positions between the two
    axes, as after a convolution, S and D are summed over them.
    """
    d = _wide(deltas)
    s = d * _wide(normalised)
    s, d = (part.reshape(len(part), -1, part.shape[-1]).sum(axis=1) for part in (s, d))
    return s @ s.T + d @ d.T


def conv_gram(
    inputs: Any,
    deltas: Any,
    kernel_size: Sequence[int],
    strides: Sequence[int] = (1, 1),
    padding: str = "VALID",
    bias: bool = True,
) -> Any:
    """G G^T, + B B^T with a bias: a convolution of `inputs` (n, h, w, c_in) and `deltas` (n, h', w', c_out).

    G are the kernel gradients of each sample, taken one row of the kernel at a time to save memory. B are the
    bias gradients, the deltas summed over positions. `padding` is "VALID" or "SAME", as in Flax; no dilation or groups.
    """
    x, d = _wide(inputs), _wide(deltas)
    n, channels = len(d), d.shape[-1]
    steps = d.shape[1:3]
    pads = [_pads(*sizes, padding) for sizes in zip(x.shape[1:3], steps, kernel_size, strides, strict=True)]
    xp = namespace(x)
    x = xp.pad(x, [(0, 0), *pads, (0, 0)])
    d = d.reshape(n, -1, channels)
    gram = d.sum(axis=1) @ d.sum(axis=1).T * float(bias)
    for i in range(kernel_size[0]):
        rows = x[:, i :: strides[0]][:, : steps[0]]
        places = [rows[:, :, j :: strides[1]][:, :, : steps[1]] for j in range(kernel_size[1])]
        seen = xp.concatenate(places, axis=-1).reshape(n, d.shape[1], -1)
        g = (seen.transpose(0, 2, 1) @ d).reshape(n, -1)
        gram = gram + g @ g.T
    return gram


def gram_metrics(gram: Any) -> GramMetrics:
    """Effective rank, srank, trace and condition number of a Gram matrix (n, n), on the host.

    The ranks are `rank.effective_rank` and `rank.srank` of its eigenvalues, which for a Gram matrix are its singular
    values. The condition number is the largest eigenvalue over the smallest; eigenvalues within rounding of 0 (n eps of
    the largest, eps that of the matrix's own floats) count as 0 in the ranks and as n eps in the condition number, so
    that a singular matrix has the largest value that can be told, 1 / (n eps), and not infinity: 3.5e13 for n = 128 in
    float64, 65,536 in float32. Leaving them out instead would make a matrix look better as it loses rank.
    """
    matrix = np.asarray(gram)
    resolution = len(matrix) * float(np.finfo(np.float64 if matrix.dtype == np.float64 else np.float32).eps)
    matrix = matrix.astype(np.float64)
    values = eigenvalues(matrix, resolution)
    smallest = values[-1] / values[0] if values[0] != 0 else 0.0
    return GramMetrics(
        effective_rank(values), srank(values), float(np.trace(matrix)), float(1.0 / np.maximum(smallest, resolution))
    )


def _wide(array: Any) -> Any:
    """`array`, in float64 on the host."""
    return array.astype(np.float64, copy=False) if isinstance(array, np.ndarray) else array


def _pads(size: int, steps: int, kernel: int, stride: int, padding: str) -> tuple[int, int]:
    """The zeros before and after an axis of `size` over which a kernel makes `steps` steps."""
    if padding not in ("VALID", "SAME"):
        raise ValueError(f"padding must be 'VALID' or 'SAME', got {padding!r}")
    expected = -(-size // stride) if padding == "SAME" else (size - kernel) // stride + 1
    if steps != expected:
        raise ValueError(
            f"{padding} over {size} in strides of {stride} makes {expected} steps, but deltas have {steps}"
        )
    zeros = max((steps - 1) * stride + kernel - size, 0)
    return zeros // 2, zeros - zeros // 2
