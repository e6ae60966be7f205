"""The matrix products of a compiled function: how much work they are, and how fast this machine does just them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from neoteny.bench.timing import alternate
from neoteny.machine.compiled import compiled


@dataclass(frozen=True)
class Product:
    """A matrix product, or a convolution: its operands' shapes, and how it is made of them."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    flops: int
    primitive: str
    params: str
    """What tells two apart besides."""

    def __str__(self) -> str:
        return f"{self.primitive} {self.left} {self.right}"


@dataclass(frozen=True)
class Work:
    """Products with how often each is made, on average, and something that makes one."""

    counts: dict[Product, float]
    made_by: dict[Product, Callable[[Any, Any], Any]]

    @property
    def flops(self) -> float:
        """Two for each multiplication and addition."""
        return sum(product.flops * count for product, count in self.counts.items())


def products(function: Callable[..., Any], *args: Any, conditional: float = 1.0) -> Work:
    """Every product of `function`, which is not run. conditional: how often a `cond` takes its larger branch."""
    counts: Counter[Product] = Counter()
    made_by: dict[Product, Callable[[Any, Any], Any]] = {}
    for product, make, often in _walk(jax.make_jaxpr(function)(*args).jaxpr, 1.0, conditional):
        counts[product] += often  # type: ignore[assignment]
        made_by[product] = make
    return Work(dict(counts), made_by)


def seconds(work: Work, rounds: int = 15) -> float:
    """What the products alone take, each compiled and timed by itself, as often as it is made."""
    rng = np.random.default_rng(0)
    cases = {}
    for product, make in work.made_by.items():
        operands = [jax.device_put(rng.standard_normal(shape, np.float32)) for shape in (product.left, product.right)]
        cases[str(product) + product.params] = _repeated(compiled(make), *operands)
    taken = alternate(cases, rounds)
    return sum(taken[str(product) + product.params] / REPEAT * 1e-6 * often for product, often in work.counts.items())


REPEAT = 20
"""Products in a call that is timed: they are dispatched one after the other, and the last is waited for."""


def _repeated(product: Any, left: Any, right: Any) -> Callable[[], object]:
    def call() -> None:
        for _ in range(REPEAT):
            made = product(left, right)
        made.block_until_ready()

    return call


def _walk(jaxpr: Any, often: float, conditional: float) -> Iterator[tuple[Product, Callable[[Any, Any], Any], float]]:
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name in ("dot_general", "conv_general_dilated"):
            yield *_product(equation), often
        elif name == "scan":
            yield from _walk(params["jaxpr"].jaxpr, often * params["length"], conditional)
        elif name == "cond":
            branches = [list(_walk(branch.jaxpr, often * conditional, conditional)) for branch in params["branches"]]
            yield from max(branches, key=lambda found: sum(product.flops for product, _, _ in found))
        else:
            for value in params.values():
                for inner in value if isinstance(value, (tuple, list)) else (value,):
                    if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                        yield from _walk(getattr(inner, "jaxpr", inner), often, conditional)


def _product(equation: Any) -> tuple[Product, Callable[[Any, Any], Any]]:
    left, right = (tuple(value.aval.shape) for value in equation.invars)
    params = equation.params
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        inner = math.prod(left[axis] for axis in contracted)

        def make(a: Any, b: Any) -> Any:
            return lax.dot_general(a, b, params["dimension_numbers"])
    else:
        kernel = params["dimension_numbers"].rhs_spec
        inner = math.prod(right) // right[kernel[0]]
        names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers")

        def make(a: Any, b: Any) -> Any:
            return lax.conv_general_dilated(a, b, **{name: params[name] for name in names})

    flops = 2 * inner * math.prod(equation.outvars[0].aval.shape)
    told = ("dimension_numbers", "window_strides", "padding", "lhs_dilation", "rhs_dilation")
    described = " ".join(str(params[name]) for name in told if name in params)
    return Product(left, right, flops, equation.primitive.name, described), make
