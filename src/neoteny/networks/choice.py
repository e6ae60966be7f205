"""The trunk that --network asks for, from the widths that an agent has."""

from __future__ import annotations

from typing import Any

import flax.linen as nn

from neoteny.errors import UsageError
from neoteny.networks.layers import Kind
from neoteny.networks.simbav2 import SimBaV2
from neoteny.networks.trunks import MLP, NatureCNN, SimBa, SmallCNN

_OF_BLOCKS: dict[str, Any] = {"simba": SimBa, "simbav2": SimBaV2}


def trunk_of_layers(network: Any, widths: tuple[int, ...], flag: str = "--widths") -> nn.Module:
    """Return the trunk of an agent that has a width for each hidden layer.

    Args:
        network: what --network asks for.
        widths: of the hidden layers; simba and simbav2 have a block for each, and they must be the same.
        flag: what sets the widths, for errors.
    """
    if network not in _OF_BLOCKS:
        return MLP(widths, _checked(network, widths, flag))
    if len(set(widths)) != 1:
        got, same = (" ".join(map(str, numbers)) for numbers in (widths, (max(widths),) * len(widths)))
        raise UsageError(
            f"--network {network} has blocks of one width, and {flag} is {got}: give the same for each block, such as "
            f"{flag} {same}"
        )
    return _OF_BLOCKS[network](widths[0], len(widths))


def trunk_of_blocks(network: Any, width: int, blocks: int, flag: str) -> nn.Module:
    """Return the trunk of an agent that has a width and a number of blocks.

    Args:
        network: what --network asks for.
        width: of the blocks, or of every hidden layer.
        blocks: residual blocks; the other networks have one hidden layer more than that, as SimBa has its input's.
        flag: what sets the width, for errors.
    """
    if network in _OF_BLOCKS:
        return _OF_BLOCKS[network](width, blocks)
    return trunk_of_layers(network, (width,) * (blocks + 1), flag)


def trunk_of_pixels(network: Any, width: int, small: bool = False) -> nn.Module:
    """Return the trunk of an agent that sees pixels.

    Args:
        network: what --network asks for.
        width: of the dense layer after the convolutions.
        small: whether the frames are too small for the Nature CNN.
    """
    if network in _OF_BLOCKS:
        raise UsageError(
            f"--network {network} is for observations that are vectors, and these are pixels: choose mlp, layernorm, "
            "crelu or spectral, which follow the convolutions"
        )
    return (SmallCNN if small else NatureCNN)(width, _checked(network, (width,), "--cnn-width"))


def _checked(network: Kind, widths: tuple[int, ...], flag: str) -> Kind:
    if network == "crelu" and any(width % 2 for width in widths):
        raise UsageError(
            f"--network crelu has half the units of each width, and {flag} is {' '.join(map(str, widths))}: give even "
            "numbers"
        )
    return network
