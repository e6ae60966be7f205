"""SB3's replay buffers, drawing by age: how they store, and what they return, is SB3's own."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from neoteny.errors import missing_extra
from neoteny.replay.ages.ageing import Schedule, warn_if_out_of_reach
from neoteny.replay.sampling import AgeWeightedSampler, schedule_of
from neoteny.replay.storage import slots_of

try:
    from gymnasium import spaces
    from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
    from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
except ImportError as error:
    raise ImportError(str(missing_extra("neoteny.integrations.sb3", "sb3", error)), name=error.name) from error

HER_REFUSED = (
    "hindsight replay cannot be weighted by age or priority here: HerReplayBuffer draws from finished episodes alone "
    "and makes up goals as it draws, which is a law of its own; use HerReplayBuffer as it is"
)
_HER_ARGUMENTS = {"env", "n_sampled_goal", "goal_selection_strategy", "copy_info_dict"}


def kind_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> type[ReplayBuffer]:
    """The buffer of SB3's that these arguments ask for: of observations in a Dict, of n-step returns, or of neither."""
    space = kwargs.get("observation_space", args[1] if len(args) > 1 else None)
    dictionary, n_step = isinstance(space, spaces.Dict), "n_steps" in kwargs
    if dictionary and n_step:
        raise TypeError(f"n_steps={kwargs['n_steps']}: SB3 has no n-step returns for Dict observations; leave it out")
    return DictReplayBuffer if dictionary else NStepReplayBuffer if n_step else ReplayBuffer


def refuse_hindsight(buffer: ReplayBuffer, kwargs: dict[str, Any]) -> None:
    """Refuse the arguments of hindsight replay."""
    if _HER_ARGUMENTS & set(kwargs):
        raise TypeError(f"{type(buffer).__name__}: {HER_REFUSED}")


class AgeWeightedReplayBuffer(ReplayBuffer):
    """``SAC("MlpPolicy", env, replay_buffer_class=AgeWeightedReplayBuffer)``: SB3's ReplayBuffer, drawing by age.

    decay_steps, min_weight: max(min_weight, 1 - age / decay_steps), in transitions (80,000 and 0.1). decay_steps="auto"
    makes it a tenth of what is stored, decay_fraction another fraction. age_weight: any other schedule, ours or yours.
    Everything else is SB3's. Observations in a Dict, and `n_steps` and `gamma` in
    ``replay_buffer_kwargs`` (the agent's own n_steps is ignored by SB3 when a buffer class is given), make it the kind
    of buffer below that holds them. Randomness is NumPy's global generator, which SB3 seeds.
    """

    added: int
    """Transitions ever added, the clock."""
    num_pinned: int
    """Vector steps at the beginning that are never overwritten."""
    pinned_share: float

    def __new__(cls, *args: Any, **kwargs: Any) -> AgeWeightedReplayBuffer:
        """The kind that holds such observations, and such returns."""
        kind: type[AgeWeightedReplayBuffer] = cls
        if cls is AgeWeightedReplayBuffer:
            kind = _KINDS[kind_of(args, kwargs)]
        return super().__new__(kind)

    def __init__(
        self,
        *args: Any,
        decay_steps: float | Literal["auto"] | None = None,
        min_weight: float | None = None,
        age_weight: Schedule | None = None,
        decay_fraction: float | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_hindsight(self, kwargs)
        self.sampler = AgeWeightedSampler(
            schedule_of(age_weight, decay_steps, min_weight, "age_weight", decay_fraction)
        )
        super().__init__(*args, **kwargs)
        self._begin()
        warn_if_out_of_reach(self.sampler.schedule, self.buffer_size * self.n_envs, stacklevel=2)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if issubclass(cls, HerReplayBuffer):
            raise TypeError(f"{cls.__name__}: {HER_REFUSED}")

    @classmethod
    def from_buffer(
        cls,
        buffer: ReplayBuffer,
        decay_steps: float | Literal["auto"] | None = None,
        min_weight: float | None = None,
        age_weight: Schedule | None = None,
        decay_fraction: float | None = None,
    ) -> AgeWeightedReplayBuffer:
        """What `buffer` holds, in its order, drawn by age from now on: for a run that is already under way.

        The arrays are taken over, not copied: use the new buffer alone. It is of the kind that `buffer` is of
        (observations in a Dict, n-step). The clock of a schedule that uses it begins at what is held.
        """
        kind = _KINDS.get(type(buffer))
        if kind is None:
            reason = HER_REFUSED if isinstance(buffer, HerReplayBuffer) else "what it draws by would be lost"
            known = ", ".join(base.__name__ for base in _KINDS)
            raise TypeError(f"from_buffer takes one of {known}, and {type(buffer).__name__} is none: {reason}")
        sampler = AgeWeightedSampler(schedule_of(age_weight, decay_steps, min_weight, "age_weight", decay_fraction))
        converted = kind.__new__(kind)
        converted.__dict__.update(buffer.__dict__)
        converted.sampler = sampler
        if not isinstance(buffer, AgeWeightedReplayBuffer):
            converted._begin()
            converted.added = buffer.size() * buffer.n_envs
        ageing = buffer.buffer_size - converted.num_pinned
        warn_if_out_of_reach(sampler.schedule, ageing * buffer.n_envs, stacklevel=2)
        return converted

    def pin(self, share: float) -> None:
        """Keep what is held now for ever, and draw this share of each batch evenly from it: demonstrations.

        Without this they look oldest, weigh least, and are the first to be overwritten. Ages are those of the rest.
        """
        if not 0 < share < 1:
            raise ValueError(f"pin: share must be between 0 and 1, got {share}")
        if self.full or self.pos == 0 or self.num_pinned:
            held = "it has pinned some before" if self.num_pinned else "it is full" if self.full else "it holds nothing"
            raise ValueError(f"pin: demonstrations must be all that is held, once, with room for more; {held}")
        if self.optimize_memory_usage or isinstance(self, NStepReplayBuffer):
            raise ValueError(
                "pin: with optimize_memory_usage or n-step returns a transition continues in the next slot of the "
                "ring, which pinned ones would break: use neither"
            )
        self.num_pinned, self.pinned_share = self.pos, share

    def add(self, *args: Any, **kwargs: Any) -> None:
        """SB3's, one transition of each environment."""
        super().add(*args, **kwargs)
        self.added += self.n_envs
        self.pos = max(self.pos, self.num_pinned)  # the ring begins behind what is pinned

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self._begin()

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """A batch, drawn by age; `env` normalises it, as in SB3."""
        rng = np.random.Generator(np.random.get_bit_generator())  # type: ignore[attr-defined] # missing in the stubs
        return self._get_samples(self.slots(rng, batch_size), env=env)

    def slots(self, rng: np.random.Generator, batch_size: int) -> NDArray[np.int64]:
        """Draw vector steps by age. Which environment's transition of it is meant does not change the age."""
        pinned, stored = self.num_pinned, self.num_ageing
        if stored == 0 and not pinned:
            raise ValueError("nothing is stored yet: add transitions before sampling")
        if stored == 0:
            return rng.integers(0, pinned, batch_size)
        newest_first = self.sampler.positions(rng, batch_size, stored * self.n_envs, self.n_envs, self.added)
        slots = self.slots_behind(newest_first // self.n_envs)
        if pinned:
            chosen = rng.random(batch_size) < self.pinned_share
            slots[chosen] = rng.integers(0, pinned, int(chosen.sum()))
        return slots

    def slots_behind(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slots so many vector steps behind the newest; what is pinned lies before the ring."""
        return self.num_pinned + slots_of(steps, self.pos - self.num_pinned, self.buffer_size - self.num_pinned)

    @property
    def num_ageing(self) -> int:
        """Vector steps that are drawn by age: all but those pinned, and one that memory optimisation has spoilt."""
        if not self.full:
            return self.pos - self.num_pinned
        # With a full ring, the slot at `pos` has had its observation overwritten by the newest one's successor.
        return self.buffer_size - self.num_pinned - int(self.optimize_memory_usage)

    def share_of_newest(self, steps: int) -> float:
        """The probability that a draw is among the newest `steps` vector steps."""
        law = self.sampler.probabilities(self.num_ageing * self.n_envs, self.n_envs, self.added)
        return float(law[: steps * self.n_envs].sum()) * (1 - self.pinned_share)

    def _begin(self) -> None:
        self.added, self.num_pinned, self.pinned_share = 0, 0, 0.0


class AgeWeightedDictReplayBuffer(AgeWeightedReplayBuffer, DictReplayBuffer):
    """SB3's DictReplayBuffer, drawing by age."""


class AgeWeightedNStepReplayBuffer(AgeWeightedReplayBuffer, NStepReplayBuffer):
    """SB3's NStepReplayBuffer, drawing by the age of the first of the n steps."""


_KINDS: dict[type[ReplayBuffer], type[AgeWeightedReplayBuffer]] = {
    ReplayBuffer: AgeWeightedReplayBuffer,
    DictReplayBuffer: AgeWeightedDictReplayBuffer,
    NStepReplayBuffer: AgeWeightedNStepReplayBuffer,
    AgeWeightedReplayBuffer: AgeWeightedReplayBuffer,
    AgeWeightedDictReplayBuffer: AgeWeightedDictReplayBuffer,
    AgeWeightedNStepReplayBuffer: AgeWeightedNStepReplayBuffer,
}
