"""What an agent is told of a step of the environments, beside the observations that it acts on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neoteny.runs.session import Session
from neoteny.training.setup import Setup


def observe(session: Session, setup: Setup, reward: NDArray[Any], ended: NDArray[np.bool_]) -> None:
    """Let the agent observe the rewards of a step and which episodes ended with it, if it needs them."""
    if setup.observe is not None:
        acting = setup.observe(session.state.acting, reward.astype(np.float32), ended)
        session.state = dataclasses.replace(session.state, acting=acting)
