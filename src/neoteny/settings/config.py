"""What can be set of a run. No JAX here: threads must be limited before JAX first computes."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from neoteny.agents.configs import AGENTS, AUTO, AgentConfig, TD3Config
from neoteny.errors import UsageError
from neoteny.remedies.config import RemedyConfig
from neoteny.remedies.registry import as_json, checked
from neoteny.settings.reading import made, made_remedies
from neoteny.settings.replay import ReplayConfig
from neoteny.wording import counted

if TYPE_CHECKING:
    from neoteny.agents.learner import Remedy

    Remedies: TypeAlias = tuple[RemedyConfig, ...]
else:
    Remedies = Any

__all__ = ["PlasticityConfig", "ReplayConfig", "TrainConfig", "check_seed"]


@dataclass(frozen=True)
class PlasticityConfig:
    """How plasticity is measured."""

    probe_every: int = 1_000
    """Updates between measurements of plasticity; 0 for none."""
    twin_every: int = 0
    """Updates between measurements of the fresh-twin gap, each of which trains 3 networks for 1,000 updates; 0 for
    none."""

    def __post_init__(self) -> None:
        for name in ("probe_every", "twin_every"):
            if getattr(self, name) < 0:
                raise UsageError(f"--{name.replace('_', '-')} must be >= 0, got {getattr(self, name)}")


@dataclass(frozen=True)
class TrainConfig:
    """A training run."""

    env: str
    """A Gymnasium id: Hopper-v5, dm_control/humanoid-run-v0, ALE/Breakout-v5, or any other that is registered."""
    agent: AgentConfig = field(default_factory=TD3Config)
    """The agent's own numbers."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    """The replay's."""
    plasticity: PlasticityConfig = field(default_factory=PlasticityConfig)
    """How plasticity is measured."""
    remedies: Remedies = ()
    """What restores or keeps plasticity, such as (ReDo(tau=0.1), Reset()): see `neoteny.remedies`."""
    total_timesteps: int = cast(int, None)
    """Steps over all environments; if not given the paper's, 10M for ddqn and 1M for td3 and sac."""
    priming_updates: int = 0
    """Updates on the first --priming-steps transitions, which are collected at random, before it trains as usual."""
    priming_steps: int = 100
    """Steps before the updates of priming, at most --learning-starts."""
    seed: int = 1
    """Of everything; from 0 to 4,294,967,295."""
    num_envs: int = 1
    """Environments that step together."""
    action_repeat: int | None = None
    """Simulator steps for each decision; 2 for DeepMind Control if not given, else 1."""
    sticky: bool = False
    """Atari: sticky actions with probability 0.25."""
    eval_every: int | None = None
    """Steps between evaluations; 0 for none. 10,000 if not given, 250,000 for ddqn."""
    eval_episodes: int = 10
    """Episodes of each evaluation."""
    stop_at_return: float | None = None
    """Be done as soon as the mean return of an evaluation is at least this; if not given, at the last step."""
    log_every: int = 1_000
    """Steps between lines of metrics."""
    checkpoint_every: float = 600
    """Seconds between checkpoints, which are also made at the start, at the end and when stopped; 0 for none."""
    on_nan: Literal["halt", "skip"] = "halt"
    """What to do about an update whose loss or gradient is not finite: stop, or leave it out (100 in a row stop)."""
    threads: int | None = None
    """Threads for maths; part of the result, since it changes the last bits. 1 for td3, else every core allowed."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where the networks live. GPUs are not tested yet."""
    keep_checkpoints: int = 0
    """Checkpoints that are never removed, at equal shares of the run: 4 keeps those at 25, 50, 75 and 100%."""
    wandb: bool = False
    """Also log to Weights & Biases (WANDB_MODE=offline works)."""

    def __post_init__(self) -> None:
        if cast("int | None", self.total_timesteps) is None:
            object.__setattr__(self, "total_timesteps", self.agent.usual_steps)
        if self.eval_every is None:
            object.__setattr__(self, "eval_every", self.agent.usual_eval_every)
        for name, least in (
            ("total_timesteps", 1),
            ("num_envs", 1),
            ("priming_updates", 0),
            ("priming_steps", 1),
            ("eval_every", 0),
            ("eval_episodes", 1),
            ("log_every", 1),
            ("checkpoint_every", 0),
            ("keep_checkpoints", 0),
        ):
            if getattr(self, name) < least:
                flag = "steps" if name == "total_timesteps" else name.replace("_", "-")
                raise UsageError(f"--{flag} must be >= {least}, got {getattr(self, name)}")
        object.__setattr__(self, "seed", check_seed(self.seed))
        if self.stop_at_return is not None:
            if not math.isfinite(self.stop_at_return):
                raise UsageError(f"--stop-at-return must be finite, got {self.stop_at_return}")
            if not self.eval_every:
                raise UsageError(
                    f"--stop-at-return {self.stop_at_return:g} needs evaluations, and --eval-every 0 makes none"
                )
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"--threads must be >= 1, got {self.threads}")
        if self.keep_checkpoints and not self.checkpoint_every:
            raise UsageError(
                f"--keep-checkpoints {self.keep_checkpoints} needs checkpoints, and --checkpoint-every 0 makes none"
            )
        object.__setattr__(self, "remedies", checked(self.remedies))
        for remedy in self.remedies:
            remedy.check_settings(self.agent)
        if self.agent.utd != AUTO:
            self.updates()
        self._check_priming()
        atari = isinstance(self.env, str) and self.env.startswith("ALE/")
        if self.sticky and not atari:
            raise UsageError(f"--sticky is for Atari, and {self.env} is not")
        if atari and self.action_repeat is not None:
            raise UsageError("--action-repeat is not for Atari, which skips 4 frames")

    def _check_priming(self) -> None:
        """Refuse priming that would do nothing, or on other transitions than the first ones."""
        if not self.priming_updates:
            if self.priming_steps != TrainConfig.priming_steps:
                raise UsageError(f"--priming-steps {self.priming_steps} has no use without --priming-updates")
            return
        for flag, most in (
            ("--learning-starts", self.agent.learning_starts),
            ("--capacity", self.replay.capacity),
            ("--steps", self.total_timesteps),
        ):
            if self.priming_steps > most:
                raise UsageError(f"--priming-steps must be at most {flag}, {most:,}, got {self.priming_steps:,}")

    @property
    def agent_name(self) -> str:
        """td3, sac or ddqn."""
        return self.agent.name

    @property
    def num_threads(self) -> int:
        """Threads for maths: what was asked for, or what this agent is best with."""
        if self.threads is not None:
            return self.threads
        if "PJRT_NPROC" in os.environ:
            return int(os.environ["PJRT_NPROC"])
        return 1 if self.agent.one_thread else len(os.sched_getaffinity(0))

    def updates(self) -> tuple[int, int]:
        """Updates in each compiled call, and ticks of the environments between calls."""
        due = self.agent.utd * self.num_envs
        if due > 0 and due == int(due):
            return int(due), 1
        if 0 < due < 1 and (1 / due) == int(1 / due):
            return 1, int(1 / due)
        raise UsageError(
            f"--utd {self.agent.utd} with {counted(self.num_envs, 'environment')} makes {due} updates a tick; that "
            "must be a whole number, or one update every whole number of ticks"
        )

    def planned_updates(self, steps: int) -> int:
        """Return the updates that a run of so many steps makes."""
        return self.priming_updates + int(max(0, steps - self.agent.learning_starts) * self.agent.utd)

    @property
    def follows_drift(self) -> bool:
        """Whether T is set from drift while the run goes on."""
        return self.replay.decay_steps == "drift"

    def default_decay_steps(self) -> float:
        """The paper's T for this agent."""
        return self.agent.usual_decay_steps

    def build_remedies(self, horizon: int) -> tuple[Remedy, ...]:
        """Return the remedies of a run that was planned to make so many steps."""
        return tuple(remedy.build(self.planned_updates(horizon)) for remedy in self.remedies)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            **dataclasses.asdict(self),
            "remedies": as_json(self.remedies),
            "agent_name": self.agent_name,
            "threads": self.num_threads,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> TrainConfig:
        """From what `to_json` gave; a UsageError if it is something else."""
        data = dict(data)
        name = data.pop("agent_name", None)
        if not isinstance(name, str) or name not in AGENTS:
            raise UsageError(f"agent_name must be one of {', '.join(AGENTS)}, got {name!r}")
        remedies = made_remedies(data)
        parts = {"agent": AGENTS[name], "replay": ReplayConfig, "plasticity": PlasticityConfig}
        part_configs = {part: made(kind, data.pop(part, {}), f"{part}.") for part, kind in parts.items()}
        return dataclasses.replace(cast(TrainConfig, made(TrainConfig, {**data, **part_configs})), remedies=remedies)

    def run_id(self, own_parts: dict[str, str] | None = None) -> str:
        """Return eight letters that equal configurations share: see `neoteny.settings.identity`."""
        from neoteny.settings.identity import run_id  # which imports this module

        return run_id(self, own_parts)

    def default_directory(self, own_parts: dict[str, str] | None = None) -> Path:
        """Return runs/<env>/<agent>-<replay>/<seed>-<id>, in letters that every file system takes."""
        method = f"{self.agent_name}-{self.replay.replay}"
        return Path("runs") / _safe(self.env) / _safe(method) / f"{self.seed}-{self.run_id(own_parts)}"


def check_seed(seed: Any) -> int:
    """`seed`, or an error if it is not a whole number of 32 bits: JAX would forget what is above."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise UsageError(f"--seed must be a whole number from 0 to {2**32 - 1}, got {seed}")
    return int(seed)


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)
