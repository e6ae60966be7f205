"""What can be set of the replay. No JAX here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from neoteny.errors import UsageError
from neoteny.replay.ages.schedules import AUTO_FRACTION
from neoteny.replay.registry import name_and_numbers
from neoteny.replay.sampling import check_schedule_type
from neoteny.replay.users import parameters_as_text, parameters_from_text

if TYPE_CHECKING:
    Replay: TypeAlias = Any  # what may be given: also a schedule
    ReplayArg: TypeAlias = Any  # and a mapping
else:
    Replay, ReplayArg = str, tuple[str, ...]  # what they become, and what the command line gives


@dataclass(frozen=True)
class ReplayConfig:
    """Which transitions are replayed."""

    replay: Replay = "uniform"
    """uniform, swd, swa, exponential, polynomial, geometric, truncated-geometric, inverse-age, ere, window, combined,
    per, swd-per, faded-per, or your own schedule as package.module:Class. In Python also a schedule itself, such as
    HalfLife(steps=500)."""
    replay_sampler: Literal["exact", "bucketed", "reference"] = "exact"
    """How an age law is drawn: exactly at the price of uniform, or by the paper's own samplers."""
    capacity: int = 1_000_000
    """Transitions held."""
    n_step: int = 1
    """Rewards summed before bootstrapping."""
    decay_steps: float | Literal["auto", "drift"] | None = None
    """T of swd, swa, exponential, polynomial and swd-per, in transitions; 100,000 for td3, else 80,000. For swd and
    swd-per also auto: a tenth of what is stored. For swd also drift, which is experimental: the largest T that draws
    little of what is far from what the agent would do now."""
    decay_fraction: float | None = None
    """T of swd and swd-per as a fraction of what is stored, instead of --decay-steps."""
    min_weight: float | None = None
    """w_min of those, and of geometric and faded-per; 0.1."""
    decay_tau: float | None = None
    """Time constant of exponential, in units of T; 1."""
    decay_power: float | None = None
    """Exponent of polynomial; 2."""
    decay_clip: bool | None = None
    """Whether polynomial's base stops at 0; yes."""
    decay_rate: float | None = None
    """epsilon of geometric, 1e-5, and of faded-per, 1e-4."""
    mean_age: float | None = None
    """The mean age of what truncated-geometric draws, in transitions; 50,000."""
    ere_eta: float | None = None
    """eta of ere; 0.996."""
    ere_c_min: float | None = None
    """c_min of ere; 5,000."""
    window_steps: float | None = None
    """Length of window; 80,000."""
    per_alpha: float | None = None
    """alpha of per, swd-per and faded-per; 0.6."""
    per_beta: float | None = None
    """beta of per, swd-per and faded-per, to begin with; 0.4."""
    per_beta_step: float | None = None
    """How much beta rises with each draw; 1e-6."""
    replay_arg: ReplayArg = ()
    """A parameter of your own schedule, as name=value; may be given more than once. In Python a mapping."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "replay_arg", parameters_as_text(self.replay_arg))
        if self.decay_fraction == AUTO_FRACTION and self.decay_steps in (None, "auto"):  # one form, and so one id
            object.__setattr__(self, "decay_fraction", None)
            object.__setattr__(self, "decay_steps", "auto")
        if not isinstance(self.replay, str):
            self._write_down(self.replay)
        elif self.replay_arg and ":" not in self.replay:
            raise UsageError(
                f"--replay-arg is for a schedule of your own, as package.module:Class, and --replay {self.replay} is "
                "ours: its numbers are flags of their own"
            )
        if twice := sorted(self._flags().keys() & parameters_from_text(self.replay_arg).keys()):
            raise UsageError(f"{', '.join(twice)} is given as a flag and by --replay-arg: give it once")

    def numbers(self) -> dict[str, Any]:
        """The numbers that were given, by flags of their own or by --replay-arg."""
        return {**self._flags(), **parameters_from_text(self.replay_arg)}

    def _flags(self) -> dict[str, Any]:
        settled = {"replay", "replay_arg", "replay_sampler", "capacity", "n_step"}
        return {
            f.name: value
            for f in dataclasses.fields(self)
            if f.name not in settled and (value := getattr(self, f.name)) is not None
        }

    def _write_down(self, schedule: Any) -> None:
        """Put the name and the numbers of `schedule` in its place, from which a run that is resumed makes it again."""
        try:
            check_schedule_type(schedule)
        except TypeError as error:
            raise UsageError(str(error)) from error
        if redundant := self.numbers():
            raise UsageError(f"replay={schedule!r} has its own numbers: leave out {', '.join(redundant)}")
        name, numbers = name_and_numbers(schedule)
        object.__setattr__(self, "replay", name)
        for number, value in ({"replay_arg": parameters_as_text(numbers)} if ":" in name else numbers).items():
            object.__setattr__(self, number, value)
