"""The networks of small_agents by NumPy in float64, one layer after the other: what twins of remedies are made of."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from neoteny.agents.agent import TrainableNetwork
from neoteny.agents.normaliser import normalise

STRIDES = {"conv_0": 4, "conv_1": 2, "conv_2": 1}


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def dense(x: Any, layer: Any) -> Any:
    return x @ layer["kernel"] + layer["bias"]


def norm(x: Any, layer: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6) * layer["scale"] + layer["bias"]


def convolution(x: Any, layer: Any, stride: int) -> Any:
    size = layer["kernel"].shape[0]
    places = range(0, x.shape[1] - size + 1, stride)
    windows = np.array([[x[:, i : i + size, j : j + size].reshape(len(x), -1) for j in places] for i in places])
    return np.moveaxis(windows, 2, 0) @ layer["kernel"].reshape(-1, layer["kernel"].shape[-1]) + layer["bias"]


def through_trunk(trunk: Any, x: Any) -> tuple[Any, dict[Any, Any], dict[Any, Any]]:
    """A trunk's features; the pre-activations of each hidden layer, and what its readers are given, by its path."""
    before: dict[Any, Any] = {}
    passed: dict[Any, Any] = {}
    if "input" in trunk:
        x = dense(x, trunk["input"])
        for index in range(sum(part.startswith("expand") for part in trunk)):
            path = (f"expand_{index}",)
            before[path] = dense(norm(x, trunk[f"norm_{index}"]), trunk[path[0]])
            passed[path] = relu(before[path])
            x = x + dense(passed[path], trunk[f"compress_{index}"])
        return norm(x, trunk["norm_out"]), before, passed
    for part in sorted(trunk):  # conv_0 to conv_2 come before layer_0
        if part in STRIDES:
            before[(part,)] = convolution(x, trunk[part], STRIDES[part])
            x = relu(before[(part,)])
            x = passed[(part,)] = x.reshape(len(x), -1) if part == "conv_2" else x
        else:
            before[(part, "dense")] = dense(x, trunk[part]["dense"])
            x = passed[(part, "dense")] = relu(before[(part, "dense")])
    return x, before, passed


def head(features: Any, layer: Any) -> Any:
    return dense(features, layer["out"].get("dense", layer["out"]))


def float64(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.array(leaf, np.float64), tree)


def inputs_of(name: str, network: TrainableNetwork, state: Any, batch: dict[str, Any]) -> Any:
    """What the trunks of a network are given."""
    obs = np.asarray(batch["obs"], np.float64)
    if name == "pixels":
        obs = np.moveaxis(obs, 1, -1) / 255.0
    if name == "sac":
        obs = np.asarray(normalise(state.acting.norm, batch["obs"]), np.float64)
    if network.name == "critics" and name in ("td3", "sac"):
        obs = np.concatenate([obs, batch["action"]], axis=-1)
    return obs


def outputs_of(params: Any, x: Any) -> Any:
    """The outputs of a network: of critics (critics, batch), of SAC's actor a mean and what is not yet log sigma."""
    features = {part: through_trunk(params[part], x)[0] for part in params if part.startswith("trunk")}
    if "trunk_0" in params:
        return np.stack([head(features[f"trunk_{i}"], params[f"head_{i}"])[:, 0] for i in range(len(features))])
    if "mean" in params:
        return head(features["trunk"], params["mean"]), head(features["trunk"], params["log_std"])
    return head(features["trunk"], params["head"])
