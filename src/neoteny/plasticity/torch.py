"""Collecting from torch networks what the formulas need: of every layer its inputs, pre-activations and deltas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from neoteny.plasticity.ntk import conv_gram, dense_gram, layer_norm_gram

_KINDS = (nn.Linear, nn.Conv2d, nn.LayerNorm)


class Layer(NamedTuple):
    """What passed through a layer, as NumPy arrays, samples first; of a convolution channels last."""

    inputs: Any
    outputs: Any
    """Its pre-activations z."""
    deltas: Any
    """The gradient of each sample's own f at z."""


class Collected(NamedTuple):
    """A forward and a backward pass."""

    layers: dict[str, Layer]
    gradients: dict[str, Any]
    """Of the sum of f over the samples, for all parameters that are trained."""
    values: Any
    """f of each sample, (batch,)."""


def collect(module: nn.Module, forward: Callable[[], Any], f: Callable[[Any], Tensor]) -> Collected:
    """Run ``f(forward())``, f giving one number for each sample, and collect every Linear, Conv2d and LayerNorm.

    Only the layers inside `module` that `forward` calls count, by their names there and in the order of the calls;
    `f` may call others. One backward pass of the sum of f gives the deltas of each sample. It goes around ``.grad``,
    and leaves the mode as it is: dropout and batch statistics are the caller's to turn off.
    """
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    collected: dict[str, Layer] = {}

    def watch(name: str) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        def hook(_: nn.Module, args: Any, out: Tensor) -> Tensor:
            if name in seen:
                raise ValueError(f"forward must call each layer once, but calls {name!r} again")
            out.requires_grad_()  # frozen weights have deltas too
            seen[name] = (args[0].detach().clone(), out)
            return out.clone()  # an activation in place would change what was seen

        return hook

    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, _KINDS)}
    hooks = [layer.register_forward_hook(watch(name)) for name, layer in layers.items()]
    with torch.enable_grad():
        try:
            outputs = forward()
        finally:
            for hook in hooks:
                hook.remove()
        values = f(outputs)
        total = values.sum()
    if values.ndim != 1:
        raise ValueError(f"f must give one number for each sample, got shape {tuple(values.shape)}")
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    wanted = [out for _, out in seen.values()] + [*trained.values()]
    slopes = torch.autograd.grad(total, wanted, materialize_grads=True)
    gradients = {name: _host(slope) for name, slope in zip(trained, slopes[len(seen) :], strict=True)}
    for (name, tensors), delta in zip(seen.items(), slopes, strict=False):
        collected[name] = Layer(*(_host(tensor, _is_image(layers[name])) for tensor in (*tensors, delta)))
    return Collected(collected, gradients, _host(values))


def activations(layers: dict[str, Layer], incoming: str, outgoing: str) -> Any:
    """What a hidden layer's units give to the layer that reads them: (batch, units) or (batch, positions, units)."""
    read = layers[outgoing].inputs
    units = layers[incoming].outputs.shape[-1]
    return read.reshape(len(read), units, -1).swapaxes(1, 2) if read.shape[-1] != units else read


def ntk_gram(layers: dict[str, Layer], module: nn.Module) -> Any:
    """K_ij = <grad f(x_i), grad f(x_j)> over all collected layers, in float64, from activations and deltas alone."""
    return sum(_gram(module.get_submodule(name), x, deltas) for name, (x, _, deltas) in layers.items() if deltas.any())


def _gram(layer: Any, inputs: Any, deltas: Any) -> Any:
    bias = layer.bias is not None
    if isinstance(layer, nn.Conv2d):
        if layer.groups != 1 or layer.dilation != (1, 1) or layer.padding_mode != "zeros":
            raise ValueError(f"no Gram matrix for groups, dilation or padding other than zeros: {layer}")
        if isinstance(layer.padding, str):
            return conv_gram(inputs, deltas, layer.kernel_size, layer.stride, layer.padding.upper(), bias)
        padded = np.pad(inputs, [(0, 0), *((n, n) for n in layer.padding), (0, 0)])
        return conv_gram(padded, deltas, layer.kernel_size, layer.stride, "VALID", bias)
    if deltas[0].size != (layer.out_features if isinstance(layer, nn.Linear) else math.prod(layer.normalized_shape)):
        raise ValueError(f"no Gram matrix of layers that share weights over positions, got {deltas.shape} from {layer}")
    x, d = inputs.reshape(len(inputs), -1).astype(np.float64), deltas.reshape(len(deltas), -1).astype(np.float64)
    if isinstance(layer, nn.Linear):
        return dense_gram(x, d, bias)
    xhat = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + layer.eps)
    if bias:
        return layer_norm_gram(xhat, d)
    return (d * xhat) @ (d * xhat).T * float(layer.elementwise_affine)


def _is_image(layer: nn.Module) -> bool:
    """Whether it takes and gives (batch, channels, height, width)."""
    return isinstance(layer, nn.Conv2d) or (isinstance(layer, nn.LayerNorm) and len(layer.normalized_shape) == 3)


def _host(tensor: Tensor, image: bool = False) -> Any:
    """A NumPy array of its own, at least float32; of an image with channels last."""
    array = tensor.detach().to("cpu", torch.promote_types(tensor.dtype, torch.float32)).numpy().copy()
    return array.transpose(0, 2, 3, 1) if image else array
