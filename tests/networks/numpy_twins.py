"""Every network's forward pass once more in NumPy, from its equations and its parameters by name."""

from __future__ import annotations

from typing import Any

import numpy as np


def relu(x: Any) -> Any:
    return np.where(x > 0, x, 0.0)


def dense(p: Any, x: Any) -> Any:
    p = p.get("dense", p)
    return x @ np.asarray(p["kernel"], np.float64) + np.asarray(p.get("bias", 0.0), np.float64)


def layer_norm(p: Any, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-6) * np.asarray(p["scale"]) + np.asarray(p["bias"])


def mlp(p: Any, x: Any, kind: str) -> Any:
    count = sum(name.startswith("layer_") for name in p)
    for index in range(count):
        layer = p[f"layer_{index}"]
        if kind == "spectral" and index == count - 1:
            kernel = np.asarray(layer["dense"]["kernel"], np.float64)
            sigma = np.linalg.svd(kernel)[1][0]
            x = relu(x @ (kernel / sigma) + np.asarray(layer["dense"]["bias"]))
            continue
        z = dense(layer, x)
        if kind == "layernorm":
            z = layer_norm(p[f"norm_{index}"], z)
        x = np.concatenate([relu(z), relu(-z)], -1) if kind == "crelu" else relu(z)
    return x


def unit(x: Any) -> Any:
    return x / np.sqrt((x**2).sum(-1, keepdims=True))


def simbav2(p: Any, x: Any) -> Any:
    """h = l2(s o W l2([x; 3])); in each block h <- l2(h + a o (l2(W2 (relu(t o W1 h) + 1e-8)) - h))."""
    width, blocks = p["input"]["kernel"].shape[1], sum(name.startswith("expand") for name in p)
    x = unit(np.concatenate([x, np.full((len(x), 1), 3.0)], 1))
    h = unit(np.asarray(p["input_scaler"]["scale"]) * dense(p["input"], x))
    for index in range(blocks):
        t = np.asarray(p[f"scaler_{index}"]["scale"])
        m = unit(dense(p[f"compress_{index}"], relu(t * dense(p[f"expand_{index}"], h)) + 1e-8))
        a = np.asarray(p[f"pace_{index}"]["scale"]) * (1 / (blocks + 1)) / (1 / np.sqrt(width))
        h = unit(h + a * (m - h))
    return h


def simbav2_head(p: Any, h: Any) -> Any:
    """W4 (u o W3 h) + b."""
    p = p["out"]
    return dense(p["out"], np.asarray(p["scaler"]["scale"]) * dense(p["in"], h))
