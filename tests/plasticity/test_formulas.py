"""The formulas of plasticity against numbers worked out by hand, Jacobians, and singular values in float64."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neoteny.plasticity.churn import policy_churn, value_churn
from neoteny.plasticity.neurons import (
    dormant_ratio,
    dormant_score,
    gradient_sparsity,
    grama_inactive_ratio,
    grama_score,
)
from neoteny.plasticity.norms import (
    effective_learning_rate,
    l1_norm,
    l1_per_parameter,
    l2_norm,
    leaves,
    namespace,
    weight_norm,
)
from neoteny.plasticity.ntk import GramMetrics, conv_gram, dense_gram, gram_metrics, layer_norm_gram
from neoteny.plasticity.rank import (
    RankMetrics,
    effective_rank,
    feature_rank,
    rank_metrics,
    singular_values,
    srank,
    stable_rank,
)

Params = dict[str, dict[str, jax.Array]]
Forward = Callable[..., tuple[jax.Array, dict[str, jax.Array]]]
ENTROPIC = 4 / 3**0.75
"""The effective rank of (3, 1): exp(3/4 ln 4/3 + 1/4 ln 4)."""


def check(function: Callable[..., Any], *trees: Any, gives: Any) -> None:
    """`function` gives what was worked out by hand: of NumPy arrays, of JAX's, and compiled."""
    for dtype in (np.float32, np.float64):
        host = tree_of(lambda numbers, dtype=dtype: np.array(numbers, dtype), trees)
        compare(function(*host), gives, host=True)
    device = tree_of(lambda numbers: jnp.array(numbers, jnp.float32), trees)
    compare(function(*device), gives, host=False)
    compare(jax.jit(function)(*device), gives, host=False)


def tree_of(make: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with an array for each list of numbers; its own lists are tuples here."""
    if isinstance(tree, dict):
        return {name: tree_of(make, part) for name, part in tree.items()}
    return tuple(tree_of(make, part) for part in tree) if isinstance(tree, tuple) else make(tree)


def compare(computed: Any, expected: Any, *, host: bool) -> None:
    if isinstance(expected, dict):
        assert computed.keys() == expected.keys()
        for name, value in expected.items():
            compare(computed[name], value, host=host)
    else:
        assert isinstance(computed, (np.ndarray | np.generic) if host else jax.Array)
        assert np.shape(computed) == np.shape(expected)
        np.testing.assert_allclose(computed, expected, rtol=1e-6, atol=1e-7)


# Units


def test_scores_of_a_dense_layer() -> None:
    # Means of |.| over the two samples: 2, 2, 0. Their mean: 4/3.
    values = [[1.0, -2.0, 0.0], [3.0, 2.0, 0.0]]
    check(grama_score, values, gives=[1.5, 1.5, 0.0])
    check(dormant_score, values, gives=[1.5, 1.5, 0.0])


def test_scores_of_a_convolution_are_its_channels() -> None:
    # (1, 2, 2, 2). Channel 0: |1| + |-1| + |2| + |0| over 4 positions = 1. Channel 1: 3 everywhere. Mean 2.
    values = [[[[1.0, 3.0], [-1.0, -3.0]], [[2.0, 3.0], [0.0, 3.0]]]]
    check(grama_score, values, gives=[0.5, 1.5])
    check(dormant_score, values, gives=[0.5, 1.5])


def test_signs_do_not_cancel() -> None:
    check(grama_score, [[1.0, 1.0], [-1.0, 1.0]], gives=[1.0, 1.0])  # |E g| of the first would be 0


def test_a_layer_without_gradient_is_never_flagged_and_a_silent_one_is_dormant() -> None:
    zeros = [[0.0] * 4] * 3
    check(grama_score, zeros, gives=[1.0] * 4)
    check(dormant_score, zeros, gives=[0.0] * 4)
    check(lambda x: grama_inactive_ratio([grama_score(x)], 0.99), zeros, gives=0.0)
    check(lambda x: dormant_ratio([dormant_score(x)], 0.0), zeros, gives=1.0)


@pytest.mark.parametrize("ratio", [grama_inactive_ratio, dormant_ratio])
def test_ratios_pool_units_over_layers(ratio: Callable[..., Any]) -> None:
    # At or below 0.5: two of four, none of one. Pooled 2/5, where the mean over layers would be 1/4.
    layers = {"first": [0.0, 0.5, 0.75, 2.75], "second": {"inner": [1.0]}}
    check(lambda scores: ratio(scores, 0.5), layers, gives=0.4)
    check(lambda scores: ratio(scores, 0.5), (layers["first"], [1.0]), gives=0.4)
    check(lambda scores: ratio(scores, 0.0), layers, gives=0.2)


def test_gradient_sparsity() -> None:
    # Under 1e-8: 0 and +-5e-9. Not: +-2e-8 and 1.
    gradients = {"kernel": [[0.0, 5e-9], [-5e-9, 1.0]], "bias": [2e-8, -2e-8]}
    check(gradient_sparsity, gradients, gives=0.5)
    check(lambda g: gradient_sparsity(g, threshold=1e-7), gradients, gives=5 / 6)


def test_nan_in_nan_out() -> None:
    for function in (grama_score, dormant_score):
        check(function, [[1.0, math.nan]], gives=[math.nan, math.nan])
    for function in (lambda x: grama_inactive_ratio(x, 0.1), lambda x: dormant_ratio(x, 0.1), gradient_sparsity):
        check(function, ([1.0, 2.0], [0.0, math.nan]), gives=math.nan)


# Norms


def test_norms() -> None:
    tree = {"layer": {"kernel": [[3.0, -4.0]], "bias": [0.0]}, "head": ([-12.0], [[0.0, 0.0]])}
    check(l1_norm, tree, gives=19.0)
    check(l1_per_parameter, tree, gives=19.0 / 6)  # six entries
    check(l2_norm, tree, gives=13.0)  # 9 + 16 + 144 = 169
    check(weight_norm, tree, gives=13.0)
    check(l2_norm, [3.0, 4.0], gives=5.0)  # an array alone


def test_effective_learning_rate_of_each_layer() -> None:
    weights = {"trunk": {"dense": {"kernel": [[6.0, 0.0]], "bias": [8.0]}, "norm": {"scale": [2.0]}}, "new": ([0.0],)}
    gradients = {
        "trunk": {"dense": {"kernel": [[0.0, 3.0]], "bias": [4.0]}, "norm": {"scale": [-1.0]}},
        "new": ([1.0],),
    }
    rates = {"trunk/dense": 0.5, "trunk/norm": 0.5, "new": math.nan}  # 5 / 10, 1 / 2, 1 / 0
    check(effective_learning_rate, gradients, weights, gives=rates)
    with pytest.raises(ValueError, match="same layers"):
        effective_learning_rate({"a": np.ones(1)}, {"a": {"b": np.ones(1)}})


def test_leaves_and_namespaces() -> None:
    assert sorted(leaves({"a": [1, (2, {"b": 3})], "c": {}})) == [1, 2, 3]
    assert namespace(np.ones(1)) is namespace(np.float32(1)) is namespace(object()) is np  # as before NumPy 2.0
    assert namespace(jnp.ones(1)) is jnp
    jax.jit(lambda x: (x, namespace(x) is jnp or pytest.fail("a tracer's namespace")))(jnp.ones(1))


# Ranks


def test_ranks_of_three_and_one() -> None:
    sigma = np.array([3.0, 1.0])
    assert effective_rank(sigma) == pytest.approx(ENTROPIC)
    assert srank(sigma) == 2  # 3/4 is short of .99
    assert srank(sigma, share=0.75) == 1
    assert stable_rank(sigma) == pytest.approx(10 / 9)
    assert feature_rank(sigma, 4) == 2  # 1.5 and 0.5
    assert feature_rank(sigma, 4, threshold=0.5) == 1  # above, not at
    assert feature_rank(sigma, 40_000) == 1  # 0.015 and 0.005


@pytest.mark.parametrize("features", [[[3.0, 0.0, 0.0], [0.0, -1.0, 0.0]], [[0.0, 1.0], [3.0, 0.0], [0.0, 0.0]]])
@pytest.mark.parametrize("kind", [np.float32, np.float64, jnp.array])
def test_singular_values_of_wide_and_tall(features: list[list[float]], kind: Any) -> None:
    matrix = kind(features)
    assert singular_values(matrix) == pytest.approx([3.0, 1.0])
    assert rank_metrics(matrix) == pytest.approx(RankMetrics(ENTROPIC, 2, 10 / 9, 2))


@pytest.mark.parametrize("n", [1, 7, 100, 128])
def test_ranks_of_the_identity_and_of_rank_one(n: int) -> None:
    rng = np.random.default_rng(n)
    turned = np.linalg.qr(rng.standard_normal((n, n)))[0]
    for identity in (np.eye(n), turned):
        assert rank_metrics(identity) == pytest.approx(RankMetrics(n, math.ceil(0.99 * n), n, n))
    one = np.outer(rng.standard_normal(n), rng.standard_normal(2 * n)).astype(np.float32)
    for features in (one, one.T):
        assert rank_metrics(features) == pytest.approx(RankMetrics(1, 1, 1, 1), rel=1e-4)


def test_rounding_does_not_count() -> None:
    assert {srank(np.full(n, size)) for n in (100, 200) for size in (0.1, 0.3, 0.7, 1.1)} == {99, 198}
    exactly_one = 2.0**30 * np.outer(np.arange(1, 65), np.arange(1, 129))
    assert rank_metrics(exactly_one) == pytest.approx(RankMetrics(1, 1, 1, 1), rel=1e-12)
    assert not singular_values(exactly_one)[1:].any()


def test_ranks_of_nothing() -> None:
    assert rank_metrics(np.zeros((3, 5))) == RankMetrics(0, 0, 0, 0)
    for bad in (math.nan, math.inf):
        assert np.isnan(rank_metrics(np.full((3, 5), bad))).all()
    with pytest.raises(ValueError, match=r"\(samples, units\)"):
        rank_metrics(np.zeros((2, 3, 4)))


def spread(rng: np.random.Generator, shape: tuple[int, int], decades: float) -> np.ndarray:
    """A matrix whose singular values go from 1 down by that many powers of ten."""
    n = min(shape)
    left, right = (np.linalg.qr(rng.standard_normal((size, n)))[0] for size in shape)
    return (left * 10.0 ** np.linspace(0, -decades, n)) @ right.T


FAMILIES: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "relu": lambda rng, shape: np.maximum(rng.standard_normal(shape), 0),
    "rank 5": lambda rng, shape: rng.standard_normal((shape[0], 5)) @ rng.standard_normal((5, shape[1])),
    "6 decades": lambda rng, shape: spread(rng, shape, 6),
    "12 decades": lambda rng, shape: spread(rng, shape, 12),
    "columns over 12 decades": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.uniform(-9, 3, shape[1]),
    "one direction and a little": lambda rng, shape: 1 + 1e-3 * rng.standard_normal(shape),
    "one direction and next to nothing": lambda rng, shape: 1 + 1e-7 * rng.standard_normal(shape),
    "tiny": lambda rng, shape: 1e-30 * rng.standard_normal(shape),
    "huge": lambda rng, shape: 1e30 * rng.standard_normal(shape),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", [(64, 256), (96, 96), (256, 64)], ids=str)
def test_ranks_agree_with_an_svd_in_float64(family: str, shape: tuple[int, int]) -> None:
    features = FAMILIES[family](np.random.default_rng(0), shape).astype(np.float32)
    sigma = np.linalg.svd(features.astype(np.float64), compute_uv=False)
    ranks = rank_metrics(features)
    assert ranks.effective_rank == pytest.approx(effective_rank(sigma), rel=1e-4)
    assert ranks.srank == srank(sigma)
    assert ranks.stable_rank == pytest.approx(stable_rank(sigma), rel=1e-9)
    assert ranks.feature_rank == feature_rank(sigma, shape[0])
    np.testing.assert_allclose(singular_values(features), sigma, rtol=1e-6, atol=1e-6 * sigma[0])


# The tangent kernel


def test_dense_gram() -> None:
    # A A^T = (5 11; 11 25), D D^T = (1 2; 2 4).
    inputs, deltas = [[1.0, 2.0], [3.0, 4.0]], [[1.0], [2.0]]
    check(dense_gram, inputs, deltas, gives=[[6.0, 24.0], [24.0, 104.0]])
    check(lambda a, d: dense_gram(a, d, bias=False), inputs, deltas, gives=[[5.0, 22.0], [22.0, 100.0]])


def test_layer_norm_gram() -> None:
    # S = (1 -2; -3 4): S S^T = (5 -11; -11 25). D D^T = (5 11; 11 25).
    check(layer_norm_gram, [[1.0, -1.0], [-1.0, 1.0]], [[1.0, 2.0], [3.0, 4.0]], gives=[[10.0, 0.0], [0.0, 50.0]])


def image(rows: list[list[float]]) -> list[list[list[list[float]]]]:
    """A picture one high and of one channel from each row: (n, 1, width, 1)."""
    return [[[[x] for x in row]] for row in rows]


def test_conv_gram() -> None:
    inputs = image([[1, 2, 3], [0, 1, -1]])
    # Kernel 1 x 2. Gradients by place: (1+2, 2+3) = (3, 5) and (0, 1*2) = (0, 2). Of the bias: 2 and 2.
    deltas = image([[1, 1], [2, 0]])
    check(lambda x, d: conv_gram(x, d, (1, 2), bias=False), inputs, deltas, gives=[[34.0, 10.0], [10.0, 4.0]])
    check(lambda x, d: conv_gram(x, d, (1, 2)), inputs, deltas, gives=[[38.0, 14.0], [14.0, 8.0]])
    # SAME adds a zero after: (1 2 3 0). Deltas (0 0 1): gradients (3, 0). Deltas (1 0 0) of (0 1 -1 0): (0, 1).
    deltas = image([[0, 0, 1], [1, 0, 0]])
    same = lambda x, d: conv_gram(x, d, (1, 2), padding="SAME", bias=False)  # noqa: E731
    check(same, inputs, deltas, gives=[[9.0, 0.0], [0.0, 1.0]])


def test_conv_gram_refuses_what_does_not_fit() -> None:
    x, d = np.zeros((2, 5, 5, 1)), np.zeros((2, 2, 2, 3))
    with pytest.raises(ValueError, match="makes 3 steps, but deltas have 2"):
        conv_gram(x, d, (3, 3))
    with pytest.raises(ValueError, match="'VALID' or 'SAME'"):
        conv_gram(x, d, (3, 3), padding="valid")


def test_gram_metrics() -> None:
    assert gram_metrics(np.diag([1.0, 3.0])) == pytest.approx(GramMetrics(ENTROPIC, 2, 4, 3))
    assert gram_metrics(jnp.array([[2.0, 1.0], [1.0, 2.0]])) == pytest.approx(GramMetrics(ENTROPIC, 2, 4, 3))
    assert gram_metrics(np.eye(5)) == pytest.approx(GramMetrics(5, 5, 5, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_singular_gram_has_the_largest_condition_number_that_can_be_told(dtype: type) -> None:
    ceiling = 1 / (4 * np.finfo(dtype).eps)
    vector = np.array([1.0, 2.0, -3.0, 0.1], dtype)
    assert gram_metrics(np.outer(vector, vector)) == pytest.approx(GramMetrics(1, 1, 14.01, ceiling))
    assert gram_metrics(np.zeros((4, 4), dtype)) == pytest.approx(GramMetrics(0, 0, 0, ceiling))
    assert gram_metrics(np.diag(np.array([1, 1, 1, 1e-3], dtype))).condition_number == pytest.approx(1000)
    assert np.isnan(gram_metrics(np.full((4, 4), math.nan, dtype))).all()


def dense(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ p["kernel"] + p["bias"]


def mlp(params: Params, x: jax.Array, at: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Dense, LayerNorm, ReLU, dense to one number; what each layer saw, and `at` added to what each layer made."""
    z = dense(params["first"], x) + at["first"]
    xhat = (z - z.mean(-1, keepdims=True)) / jnp.sqrt(z.var(-1, keepdims=True) + 1e-6)
    h = jax.nn.relu(xhat * params["norm"]["scale"] + params["norm"]["bias"] + at["norm"])
    return (dense(params["head"], h) + at["head"])[..., 0], {"first": x, "norm": xhat, "head": h}


def conv_net(padding: str) -> Forward:
    def convolve(p: dict[str, jax.Array], x: jax.Array, strides: tuple[int, int]) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, p["kernel"], strides, padding, dimension_numbers=numbers) + p["bias"]

    def forward(params: Params, x: jax.Array, at: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        h = jax.nn.relu(convolve(params["first"], x, (2, 3)) + at["first"])
        y = jax.nn.relu(convolve(params["second"], h, (1, 2)) + at["second"]).reshape(len(x), -1)
        return (dense(params["head"], y) + at["head"])[..., 0], {"first": x, "second": h, "head": y}

    return forward


class Measured(NamedTuple):
    """What a network shows of itself on a batch; `at` is what was added to what each layer made: zeros."""

    seen: dict[str, jax.Array]
    deltas: dict[str, jax.Array]
    """The gradients of its summed output, by one backward pass."""
    loss_deltas: dict[str, jax.Array]
    """The same of a loss."""
    loss_deltas_by_sample: dict[str, jax.Array]
    """These one sample at a time."""
    jacobian: Params


def measure(forward: Forward, inputs: tuple[int, ...], outputs: dict[str, Any], params: dict[str, Any]) -> Measured:
    """A network with random weights and inputs, of these shapes: those of `outputs` are one sample's."""
    rng = np.random.default_rng(0)
    normal = lambda shape: rng.standard_normal(shape, np.float32) * np.float32(0.5)  # noqa: E731
    params = {layer: {name: normal(shape) for name, shape in parts.items()} for layer, parts in params.items()}
    x = normal(inputs)
    whole = {layer: np.zeros((len(x), *shape), np.float32) for layer, shape in outputs.items()}
    single = {layer: np.zeros((1, *shape), np.float32) for layer, shape in outputs.items()}

    def f(params: Any, x: Any, at: Any) -> Any:
        return forward(params, x, at)[0]

    def loss(at: Any, x: Any) -> Any:
        return ((f(params, x, at) - 1.0) ** 2).sum()

    @jax.jit
    def all_of_it() -> Measured:
        by_sample = jax.vmap(lambda row: jax.grad(loss)(single, row[None]))(x)
        return Measured(
            forward(params, x, whole)[1],
            jax.grad(lambda at: f(params, x, at).sum())(whole),
            jax.grad(loss)(whole, x),
            {layer: g[:, 0] for layer, g in by_sample.items()},
            jax.jacrev(f)(params, x, whole),
        )

    return all_of_it()


@cache
def an_mlp() -> Measured:
    vectors = {"scale": (9,), "bias": (9,)}
    params = {"first": {"kernel": (4, 9), "bias": (9,)}, "norm": vectors, "head": {"kernel": (9, 1), "bias": (1,)}}
    return measure(mlp, (6, 4), {"first": (9,), "norm": (9,), "head": (1,)}, params)


@cache
def a_conv_net(padding: str) -> Measured:
    # 11 x 13 under a kernel of 4 x 3 in strides of 2 x 3; then one of 3 x 2 in strides of 1 x 2.
    first, second = {"VALID": ((4, 4), (2, 2)), "SAME": ((6, 5), (6, 3))}[padding]
    params = {
        "first": {"kernel": (4, 3, 2, 5), "bias": (5,)},
        "second": {"kernel": (3, 2, 5, 3), "bias": (3,)},
        "head": {"kernel": (math.prod(second) * 3, 1), "bias": (1,)},
    }
    outputs = {"first": (*first, 5), "second": (*second, 3), "head": (1,)}
    return measure(conv_net(padding), (6, 11, 13, 2), outputs, params)


def assert_it_is_the_jacobians(gram_of: Callable[[Any, Any], Any], net: Measured) -> None:
    """The Gram matrix from what layers saw and their deltas, on the host and compiled, against J J^T in float64."""
    rows = [np.asarray(part, np.float64).reshape(len(part), -1) for part in jax.tree.leaves(net.jacobian)]
    expected = sum(j @ j.T for j in rows)
    on_host = gram_of(*jax.tree.map(np.asarray, (net.seen, net.deltas)))
    assert on_host.dtype == np.float64
    for gram in (on_host, jax.jit(gram_of)(net.seen, net.deltas)):
        np.testing.assert_allclose(gram, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


def test_grams_of_an_mlp_sum_to_that_of_its_jacobian() -> None:
    def gram_of(seen: Any, deltas: Any) -> Any:
        outer = dense_gram(seen["first"], deltas["first"]) + dense_gram(seen["head"], deltas["head"])
        return outer + layer_norm_gram(seen["norm"], deltas["norm"])

    assert_it_is_the_jacobians(gram_of, an_mlp())


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_grams_of_a_conv_net_sum_to_that_of_its_jacobian(padding: str) -> None:
    def gram_of(seen: Any, deltas: Any) -> Any:
        first = conv_gram(seen["first"], deltas["first"], (4, 3), (2, 3), padding)
        second = conv_gram(seen["second"], deltas["second"], (3, 2), (1, 2), padding)
        return first + second + dense_gram(seen["head"], deltas["head"])

    assert_it_is_the_jacobians(gram_of, a_conv_net(padding))


def test_a_gram_in_float64_of_activations_in_float32_tells_small_eigenvalues() -> None:
    # The layer's inputs differ by 1e-4 of themselves, so K's eigenvalues by 1e-8: under what sums in float32 can hold.
    rng = np.random.default_rng(0)
    inputs = (1 + 1e-4 * rng.standard_normal((32, 64))).astype(np.float32)
    deltas = np.ones((32, 4), np.float32)
    exact = np.linalg.svd(np.concatenate([inputs, np.ones((32, 1))], 1, dtype=np.float64), compute_uv=False)
    assert gram_metrics(dense_gram(inputs, deltas)).condition_number == pytest.approx(
        (exact[0] / exact[-1]) ** 2, rel=0.01
    )
    on_device = gram_metrics(dense_gram(jnp.array(inputs), jnp.array(deltas)))
    assert on_device.condition_number == pytest.approx(1 / (32 * np.finfo(np.float32).eps))


@pytest.mark.parametrize("make", [an_mlp, lambda: a_conv_net("VALID"), lambda: a_conv_net("SAME")])
def test_grama_scores_are_those_of_each_samples_own_gradient(make: Callable[[], Measured]) -> None:
    net = make()
    for layer in [*net.deltas][:-1]:
        each = np.abs(np.asarray(net.loss_deltas_by_sample[layer], np.float64))
        units = each.reshape(-1, each.shape[-1]).mean(0)
        for score in (grama_score(np.asarray(net.loss_deltas[layer])), jax.jit(grama_score)(net.loss_deltas[layer])):
            np.testing.assert_allclose(score, units / units.mean(), rtol=1e-5)


# Churn


@pytest.mark.parametrize("churn", [value_churn, policy_churn])
def test_churn(churn: Callable[..., Any]) -> None:
    check(churn, [1.0, -2.0, 3.0], [2.0, -2.0, 1.0], gives=1.0)  # (1 + 0 + 2) / 3
    check(churn, [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]], gives=0.5)  # one of two one-hot actions of two
    with pytest.raises(ValueError, match="same shape"):
        churn(np.zeros((3, 1)), np.zeros(3))


# What it costs to import


def test_the_formulas_need_numpy_alone() -> None:
    names = ", ".join(f"neoteny.plasticity.{name}" for name in ("churn", "neurons", "norms", "ntk", "rank"))
    code = f"import sys, {names}; assert not {{'jax', 'torch', 'scipy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
