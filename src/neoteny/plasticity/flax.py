"""Collecting from Flax networks what the formulas need: of every layer its inputs, pre-activations and deltas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from neoteny.networks import Scaler, SpectralDense, largest_singular_value
from neoteny.plasticity.ntk import conv_gram, dense_gram, layer_norm_gram, scaler_gram, spectral_gram

Tree = Any
Path = tuple[str, ...]
_KINDS = (nn.Dense, nn.Conv, nn.LayerNorm, Scaler)


class Layer(NamedTuple):
    """What passed through a layer, samples first."""

    inputs: Array
    outputs: Array
    """Its pre-activations z."""
    deltas: Array
    """The gradient of each sample's own f at z."""
    params: Tree = None
    """Its parameters, of a layer whose kernel's gradient depends on them: one with spectral normalisation."""


class Collected(NamedTuple):
    """A forward and a backward pass."""

    layers: dict[Path, Layer]
    gradients: Tree
    """Of the sum of f over the samples, for all parameters."""
    values: Array
    """f of each sample, (batch,)."""


def collect(params: Tree, forward: Callable[[Tree], Tree], f: Callable[[Tree], Array]) -> Collected:
    """Run ``f(forward(params))``, f giving one number for each sample, and collect every layer that has parameters:
    Dense, Conv, LayerNorm, and the scalers of SimBaV2.

    Only the modules that `forward` calls count; `f` may call others. A module that is called again with other
    parameters than the first time, such as a frozen copy, counts the first time only. One backward pass of the sum of
    f, with a zero added to each pre-activation at its full shape, gives the deltas of each sample.
    """

    def run(params: Tree, nudges: dict[Path, Array] | None) -> tuple[Array, Any]:
        seen: dict[Path, tuple[Array, Array, Tree]] = {}
        owners: dict[Path, Any] = {}

        def watch(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
            out = call(*args, **kwargs)
            module = context.module
            if context.method_name != "__call__" or not isinstance(module, _KINDS):
                return out
            path = module.path
            own = next(iter(module.variables["params"].values()))
            if owners.setdefault(path, own) is not own:
                return out
            if nudges is not None:
                out = out + nudges[path]
            seen[path] = (args[0], out, module.variables["params"] if isinstance(module, SpectralDense) else None)
            return out

        with nn.intercept_methods(watch):
            outputs = forward(params)
        values = f(outputs)
        return values.sum(), (seen, values)

    _, (shapes, _) = jax.eval_shape(lambda params: run(params, None), params)
    zeros = {path: jnp.zeros(out.shape, out.dtype) for path, (_, out, _) in shapes.items()}
    (gradients, deltas), (seen, values) = jax.grad(run, argnums=(0, 1), has_aux=True)(params, zeros)
    layers = {path: Layer(inputs, outputs, deltas[path], own) for path, (inputs, outputs, own) in seen.items()}
    return Collected(layers, gradients, values)


def modules_of(forward: Callable[[], Any]) -> dict[Path, nn.Module]:
    """Every layer that `collect` would collect of what `forward` calls, by path, without computing anything."""
    modules: dict[Path, nn.Module] = {}

    def watch(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if context.method_name == "__call__" and isinstance(context.module, _KINDS):
            modules[context.module.path] = context.module.clone(parent=None)
        return call(*args, **kwargs)

    with nn.intercept_methods(watch):
        jax.eval_shape(forward)
    return modules


def activations(layers: dict[Path, Layer], incoming: Path, outgoing: Path) -> Array:
    """What a hidden layer's units give to the layer that reads them: (batch, units) or (batch, positions, units)."""
    read = layers[outgoing].inputs
    units = layers[incoming].outputs.shape[-1]
    return read.reshape(read.shape[0], -1, units) if read.shape[-1] != units else read


def ntk_gram(layers: dict[Path, Layer], modules: dict[Path, nn.Module]) -> Any:
    """K_ij = <grad f(x_i), grad f(x_j)> over all collected layers, in float64, from activations and deltas alone."""
    total: Any = 0.0
    for path, layer in layers.items():
        module = modules[path]
        inputs, deltas = np.asarray(layer.inputs, np.float64), np.asarray(layer.deltas, np.float64)
        if not deltas.any():
            continue
        match module:
            case SpectralDense():
                sigma, left, right = largest_singular_value(jnp.asarray(layer.params["kernel"]))
                total = total + spectral_gram(
                    inputs, deltas, *map(np.asarray, (layer.params["kernel"], sigma, left, right))
                )
            case Scaler():
                total = total + scaler_gram(module.rate * inputs, deltas)
            case nn.Dense():
                total = total + dense_gram(inputs, deltas, module.use_bias)
            case nn.LayerNorm():
                total = total + layer_norm_gram(_normalised(inputs, module), deltas)
            case nn.Conv():
                assert isinstance(module.padding, str)
                strides: Any = module.strides if isinstance(module.strides, tuple) else (module.strides or 1,) * 2
                total = total + conv_gram(inputs, deltas, module.kernel_size, strides, module.padding, module.use_bias)
    return total


def _normalised(inputs: Any, module: nn.LayerNorm) -> Any:
    mean, var = inputs.mean(axis=-1, keepdims=True), inputs.var(axis=-1, keepdims=True)
    return (inputs - mean) / np.sqrt(var + module.epsilon)
