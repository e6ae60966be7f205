"""Networks, against Flax's own layers."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from neoteny.networks import TorchConv, torch_init


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
