"""The evaluations of a run that trains: when they are due, what they log, and the policies that they leave."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from neoteny import envs
from neoteny.machine.signals import Stop
from neoteny.runs.policy import save_best, save_policy
from neoteny.runs.run import Run
from neoteny.runs.session import Best, Session
from neoteny.settings.config import TrainConfig
from neoteny.training.playing import ATARI_EPSILON, play
from neoteny.training.progress import Progress
from neoteny.training.setup import Setup


def evaluate_now(session: Session, setup: Setup, run: Run, progress: Progress, stop: Stop) -> list[float] | None:
    """Play the episodes of an evaluation, log them, save the policy; their returns, or None if a signal came first."""
    agent, config = setup.agent, setup.config
    params = agent.policy_params(session.state)
    epsilon = ATARI_EPSILON if config.env.startswith("ALE/") else 0.0
    assert setup.evaluation_envs is not None
    envs.stay_in_present_world(setup.evaluation_envs, session.envs)

    def policy(obs: NDArray[Any]) -> NDArray[Any]:
        if stop.signal is not None:
            raise _Abandoned
        return np.asarray(setup.evaluation(params, obs if setup.problem.pixels else obs.astype(np.float32)))

    try:
        played = play(policy, setup.evaluation_envs, config.seed, session.step, epsilon)
    except _Abandoned:
        return None  # it is still due, and a resumed run begins with it
    session.evaluated = session.step
    returns = [episode.value for episode in played]
    mean = float(np.mean(returns))
    run.log(session.step, eval_return=mean, eval_returns=returns)
    progress.evaluated(session.step, returns)
    better = math.isfinite(mean) and (session.best is None or mean > session.best.value)
    if better:
        leaves = [np.array(leaf) for leaf in jax.tree.leaves(params)]
        session.best = Best(mean, session.step, session.updates, leaves)
    try:
        save_policy(run.directory, config, agent, session.state, setup.problem, session.updates)
        if better:
            save_best(run.directory, config, setup.problem, session.best)
    except OSError as error:
        progress.say(f"The policy could not be saved at step {session.step:,} ({error.strerror}); the run goes on.")
    return returns


def good_enough(session: Session, config: TrainConfig) -> str | None:
    """Why the run is done before its last step, if the evaluation of this step has reached --stop-at-return."""
    target, best = config.stop_at_return, session.best  # the first evaluation that reaches it is the best so far
    if target is None or best is None or best.step != session.step or best.value < target:
        return None
    return f"the mean return of an evaluation, {best.value:.2f}, has reached --stop-at-return {target:g}"


class _Abandoned(Exception):
    """An evaluation that was asked to stop."""
