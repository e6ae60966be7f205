"""Presets: the configurations that flags and a plan's settings start from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from neoteny.agents.configs import AGENTS, PRESETS
from neoteny.errors import UsageError
from neoteny.remedies.registry import from_settings
from neoteny.replay.registry import REPLAYS
from neoteny.settings.automatic import settled
from neoteny.settings.config import ReplayConfig, TrainConfig
from neoteny.wording import did_you_mean

SMALL = "small"
NAMES: dict[str, tuple[str, ...]] = {agent: (*presets, SMALL) for agent, presets in PRESETS.items()}
"""The presets of each agent by name."""
_STEPS = {"simba": 500_000, "simbav2": 500_000, "fog": 500_000}
"""Steps of presets whose length is not the paper's: SimBa's 1M simulator steps at an action repeat of 2."""
_REPLAYS = {"fog": ReplayConfig("geometric")}
_REMEDIES = {"fog": ("growth",)}
"""The replay and the remedies of presets that have others than the agent's."""
_LONG = 1_000_000
"""Steps of a run for which the paper's learning starts and T are made."""
_EVALUATIONS = 10
"""Evaluations of a small run, at least."""


def start_from(agent: str, preset: str, env: Any, steps: int | None = None) -> TrainConfig:
    """Return the configuration that a preset gives before any other setting is applied; then call `complete`.

    Args:
        agent: td3, sac or ddqn.
        preset: one of `NAMES[agent]`. ``small`` is for short runs: learning starts, T and evaluation are scaled to the
            length of the run.
        env: the environment's id.
        steps: the length of the run, if it is given.
    """
    if agent not in PRESETS or preset not in NAMES[agent]:
        known = NAMES.get(agent)
        raise UsageError(
            f"{agent} has the presets {', '.join(known)}, got {preset!r}{did_you_mean(preset, known)}"
            if known
            else f"there is no agent {agent!r}: choose from {', '.join(PRESETS)}"
        )
    length = _STEPS.get(preset, AGENTS[agent].usual_steps) if steps is None else steps
    if preset != SMALL:
        return TrainConfig(
            env,
            PRESETS[agent][preset],
            _REPLAYS.get(preset, ReplayConfig()),
            remedies=from_settings(_REMEDIES.get(preset, ()), {}),
            total_timesteps=length,
        )
    if steps is None:
        raise UsageError(f"--preset {SMALL} scales to the length of the run, which is not given: add --steps")
    paper = TrainConfig(env, PRESETS[agent]["swd-paper"], total_timesteps=length)
    scaled = int(paper.agent.learning_starts * _scale(length))
    starts = max(1, min(max(paper.agent.batch_size, scaled), length // _EVALUATIONS, paper.agent.learning_starts))
    every = min(paper.eval_every or length, max(1, length // _EVALUATIONS))
    return replace(paper, agent=replace(paper.agent, learning_starts=starts), eval_every=every)


def complete(config: TrainConfig, preset: str) -> TrainConfig:
    """Return a configuration with what is decided only once the other settings are known: the T of ``small``, and the
    agent's numbers that follow from the environment."""
    config = settled(config)
    named = REPLAYS.get(config.replay.replay)
    set_already = config.replay.decay_steps is not None or config.replay.decay_fraction is not None
    if preset != SMALL or set_already or named is None or "decay_steps" not in named.numbers:
        return config
    decay_steps = config.default_decay_steps() * _scale(config.total_timesteps)
    return replace(config, replay=replace(config.replay, decay_steps=decay_steps))


def _scale(steps: int) -> float:
    return min(1.0, steps / _LONG)
