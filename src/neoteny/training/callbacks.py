"""Callbacks: what a user's own code is told while a run trains, and how it stops the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from neoteny.errors import UsageError
from neoteny.runs.policy import Policy, as_policy
from neoteny.runs.session import Session
from neoteny.settings.config import TrainConfig
from neoteny.training.setup import Setup


@dataclass(frozen=True)
class Moment:
    """Where a run is when a callback is called."""

    directory: Path
    """The run's directory."""
    config: TrainConfig
    step: int
    """Steps so far, over all environments."""
    updates: int
    """Updates so far."""
    returns: tuple[float, ...] | None
    """After an evaluation: the return of each episode."""
    _session: Session
    _setup: Setup

    def policy(self) -> Policy:
        """The policy as it is now, which later updates do not change: what ``neoteny.load_policy`` returns of a run."""
        agent = self._setup.agent
        params = jax.tree.map(np.array, agent.policy_params(self._session.state))
        return as_policy(agent, params, self._setup.problem, self._setup.facts["observation_keys"])


class Callback:
    """Code of your own, called while a run trains: subclass it, and give instances to ``train(callbacks=[...])``.

    A method that returns a text stops the run with that text as the reason: it is saved, and `resume` goes on with it.
    One that returns None lets it go on. Callbacks are no part of a run: give them to `resume` again.
    """

    def after_step(self, moment: Moment) -> str | None:
        """Called after every step of the environments and its updates."""
        return None

    def after_evaluation(self, moment: Moment) -> str | None:
        """Called after every evaluation."""
        return None

    def after_checkpoint(self, moment: Moment) -> str | None:
        """Called after every checkpoint, the first one, of step 0, and the last one included."""
        return None


class Callbacks:
    """A run's callbacks, each called for what it has a method for."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        if not isinstance(callbacks, (list, tuple)):
            raise UsageError(f"callbacks must be a list of neoteny.training.Callback, got {callbacks!r}")
        for one in callbacks:
            if not isinstance(one, Callback):
                hint = ", which is a class: write () after it" if isinstance(one, type) else ""
                raise UsageError(f"each of callbacks must be a neoteny.training.Callback, got {one!r}{hint}")
        self._told = {
            name: [one for one in callbacks if getattr(type(one), name) is not getattr(Callback, name)]
            for name in ("after_step", "after_evaluation", "after_checkpoint")
        }
        self.asked: str | None = None
        """Why the run is to stop, once a callback has said so."""

    def tell(
        self, name: str, directory: Path, session: Session, setup: Setup, returns: Sequence[float] | None = None
    ) -> None:
        """Call the method `name` of each, and remember why the run is to stop if one says so."""
        told = self._told[name]
        if not told:
            return
        played = None if returns is None else tuple(returns)
        moment = Moment(directory, setup.config, session.step, session.updates, played, session, setup)
        for one in told:
            said = getattr(one, name)(moment)
            if said is not None and not isinstance(said, str):
                raise UsageError(
                    f"{type(one).__name__}.{name} must return None, or a text that says why the run stops, got {said!r}"
                )
            self.asked = self.asked or said or None
