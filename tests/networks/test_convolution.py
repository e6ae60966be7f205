"""Networks, against Flax's own layers."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from neoteny.networks import ActionValues, SmallCNN, TorchConv, anatomy, torch_init


class Net(nn.Module):
    """One convolution, ours or Flax's."""

    own: bool

    @nn.compact
    def __call__(self, x: Any) -> Any:
        if self.own:
            return TorchConv(6, (4, 4), (2, 2), name="conv")(x)
        begin = torch_init(4 * 4 * 3)
        conv = nn.Conv(6, (4, 4), (2, 2), padding="VALID", kernel_init=begin, bias_init=begin, name="conv")
        return conv(x)


def test_a_convolution_is_flaxs_with_another_way_to_add_the_bias() -> None:
    x = jax.random.normal(jax.random.key(0), (5, 12, 12, 3))
    ours, flaxs = Net(own=True), Net(own=False)
    params = flaxs.init(jax.random.key(1), x)
    jax.tree.map(np.testing.assert_array_equal, ours.init(jax.random.key(1), x), params)
    np.testing.assert_allclose(ours.apply(params, x), flaxs.apply(params, x), rtol=1e-6, atol=1e-6)

    def gradient(net: Net) -> Any:
        return jax.grad(lambda params, x: jnp.sin(net.apply(params, x)).sum(), argnums=(0, 1))(params, x)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), gradient(ours), gradient(flaxs))


def test_the_small_cnn_by_hand() -> None:
    """One convolution of 16 maps, 3 x 3, and 128 units; frames are 0 or 1 and not divided by anything."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 2, (3, 10, 10, 4), dtype=np.uint8)
    trunk = SmallCNN()
    variables: Any = trunk.init(jax.random.key(0), frames)
    conv, dense = variables["params"]["conv_0"], variables["params"]["layer_0"]["dense"]
    assert conv["kernel"].shape == (3, 3, 4, 16)
    assert dense["kernel"].shape == (8 * 8 * 16, 128)
    kernel, bias = np.asarray(conv["kernel"], np.float64), np.asarray(conv["bias"], np.float64)
    maps = np.zeros((3, 8, 8, 16))
    for row in range(8):
        for column in range(8):
            seen = frames[:, row : row + 3, column : column + 3].reshape(3, -1).astype(np.float64)
            maps[:, row, column] = np.maximum(seen @ kernel.reshape(-1, 16) + bias, 0)
    features = np.maximum(maps.reshape(3, -1) @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"]), 0)
    np.testing.assert_allclose(trunk.apply(variables, frames), features, rtol=1e-5, atol=1e-6)


def test_the_small_cnns_anatomy() -> None:
    known = anatomy(ActionValues(SmallCNN(), 3))
    conv, dense, head = ("trunk", "conv_0"), ("trunk", "layer_0", "dense"), ("head", "out", "dense")
    assert [(layer.incoming, layer.outgoing) for layer in known.hidden] == [(conv, (dense,)), (dense, (head,))]
    assert known.names() == ("conv_0", "layer_0", "head")
    assert known.last_block == "layer_0"
