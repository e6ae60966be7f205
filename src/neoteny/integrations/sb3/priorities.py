"""SB3's replay buffers, drawing by priority, or by priority times age: how they store is SB3's own."""

from __future__ import annotations

import copy
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from neoteny.integrations.sb3.buffers import HER_REFUSED, kind_of, refuse_hindsight
from neoteny.replay.ages.ageing import Floats, Ints, Schedule, warn_if_out_of_reach
from neoteny.replay.priority import PrioritizedSampler
from neoteny.replay.sampling import check_batch_size, schedule_of
from neoteny.replay.storage import Ring

_STORED = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


class _Drawn(NamedTuple):
    """The transitions of a batch: their slots, how far behind the newest they were, and the clock of that moment."""

    slots: Ints
    positions: Ints
    clock: int


class PrioritizedReplayBuffer(ReplayBuffer):
    """SB3's ReplayBuffer, drawing by priority: the buffer of PrioritizedDQN, PrioritizedSAC and PrioritizedTD3.

    A transition is drawn in proportion to (|TD error| + eps)^alpha. With decay_steps, min_weight, decay_fraction or
    age_weight, which mean what they mean for ``AgeWeightedReplayBuffer``, to that times the weight of its age. beta,
    beta_step: of the importance weights, and how much it rises with every batch, up to 1. Every environment's
    transition has a priority of its own. With alpha=0 and no age weight the draws are SB3's own, to the bit.

    SB3's losses take no weights, so the buffer alone is not prioritised replay: an agent has to apply ``weights`` to
    the loss of the batch that it drew, and to call ``update_priorities``, as the three agents here do.
    """

    weights: torch.Tensor
    """The importance weights of the last batch drawn, (batch, 1); the largest is 1."""
    batches_drawn: int
    _drawn: _Drawn | None

    def __new__(cls, *args: Any, **kwargs: Any) -> PrioritizedReplayBuffer:
        """The kind that holds such observations, and such returns."""
        return super().__new__(_KINDS[kind_of(args, kwargs)] if cls is PrioritizedReplayBuffer else cls)

    def __init__(
        self,
        *args: Any,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_step: float = 1e-6,
        eps: float = 1e-6,
        decay_steps: float | Literal["auto"] | None = None,
        min_weight: float | None = None,
        age_weight: Schedule | None = None,
        decay_fraction: float | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_hindsight(self, kwargs)
        schedule = _schedule(age_weight, decay_steps, min_weight, decay_fraction)
        self.sampler = PrioritizedSampler(schedule, alpha, beta, beta_step, eps)
        super().__init__(*args, **kwargs)
        self._begin()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if issubclass(cls, HerReplayBuffer):
            raise TypeError(f"{cls.__name__}: {HER_REFUSED}")

    @classmethod
    def from_buffer(
        cls,
        buffer: ReplayBuffer,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_step: float = 1e-6,
        eps: float = 1e-6,
        decay_steps: float | Literal["auto"] | None = None,
        min_weight: float | None = None,
        age_weight: Schedule | None = None,
        decay_fraction: float | None = None,
    ) -> PrioritizedReplayBuffer:
        """What `buffer` of SB3's holds, drawn by priority from now on: for a run that is already under way.

        The arrays are taken over, not copied: use the new buffer alone. All transitions begin with the same priority.
        """
        kind = _KINDS.get(type(buffer))
        if kind is None:
            known = ", ".join(base.__name__ for base in _KINDS)
            reason = HER_REFUSED if isinstance(buffer, HerReplayBuffer) else "what it draws by would be lost"
            raise TypeError(f"from_buffer takes one of {known}, and {type(buffer).__name__} is none: {reason}")
        schedule = _schedule(age_weight, decay_steps, min_weight, decay_fraction)
        converted = kind.__new__(kind)
        converted.__dict__.update(buffer.__dict__)
        converted.sampler = PrioritizedSampler(schedule, alpha, beta, beta_step, eps)
        converted._begin()
        converted._note(buffer.size() * buffer.n_envs + (buffer.pos * buffer.n_envs if buffer.full else 0))
        return converted

    def add(self, *args: Any, **kwargs: Any) -> None:
        """SB3's, one transition of each environment; each has the largest priority seen."""
        super().add(*args, **kwargs)
        self._note(self.n_envs)

    def reset(self) -> None:
        """Forget everything, priorities too."""
        super().reset()
        self._begin()

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """A batch, drawn by priority; ``weights`` are then its importance weights. `env` normalises it, as in SB3."""
        check_batch_size(batch_size)
        if not self._ring.num_stored:
            raise ValueError("nothing is stored yet: add transitions before sampling")
        self.batches_drawn += 1
        if self._is_even:
            self._drawn, self.weights = None, torch.ones(batch_size, 1, device=self.device)
            return super().sample(batch_size, env=env)
        rng = np.random.Generator(np.random.get_bit_generator())  # type: ignore[attr-defined] # missing in the stubs
        positions, slots, weights = self._drawer.draw(rng, batch_size)
        self._drawn = _Drawn(slots, positions, self._ring.clock)
        self.weights = torch.as_tensor(weights, dtype=torch.float32, device=self.device).reshape(-1, 1)
        return self._gather(slots, env)

    def update_priorities(self, errors: ArrayLike) -> None:
        """Set the priorities of the last batch drawn by its TD errors, one for each transition."""
        if self._drawn is not None:  # with alpha=0 all priorities stay equal
            self._drawer.update(self._drawn, errors)

    def probabilities(self) -> Floats:
        """The probability of each transition to be drawn, [row, environment] as SB3 stores them; linear in the size."""
        law = np.zeros(self._ring.capacity)
        law[self._ring.slots_of(np.arange(self._ring.num_stored))] = self._drawer.law()
        return law.reshape(self.buffer_size, self.n_envs)

    @property
    def _is_even(self) -> bool:
        """Whether every transition is equally likely."""
        return self.sampler.alpha == 0 and self.sampler.schedule is None

    def _gather(self, slots: Ints, env: Any) -> Any:
        """What SB3 returns for these transitions, where it would pick the environment of each row at random."""
        if self.n_envs == 1:
            return self._get_samples(slots, env=env)
        if not self.optimize_memory_usage and not isinstance(self, NStepReplayBuffer):
            every = self._as_one_environment(lambda array: array.reshape(-1, 1, *array.shape[2:]))
            return every._get_samples(slots, env=env)
        # Where a transition continues in the next row, the environments stay apart.
        rows, envs = np.divmod(slots, self.n_envs)
        order = np.argsort(envs, kind="stable")
        parts = []
        for index in np.unique(envs).tolist():
            one = self._as_one_environment(lambda array, column=index: array[:, column : column + 1])
            parts.append(one._get_samples(rows[envs == index], env=env))
        back = torch.as_tensor(np.argsort(order), device=self.device)
        joined = (None if field[0] is None else torch.cat(field)[back] for field in zip(*parts, strict=True))
        return type(parts[0])(*joined)

    def _as_one_environment(self, view: Any) -> Any:
        """This buffer as one of a single environment, over views of its arrays that `view` makes."""
        one = copy.copy(self)
        one.n_envs = 1
        for name in _STORED:
            array = getattr(self, name, None)
            if array is not None:
                viewed = {key: view(part) for key, part in array.items()} if isinstance(array, dict) else view(array)
                setattr(one, name, viewed)
        return one

    def _note(self, count: int) -> None:
        """Take note of `count` transitions that were stored."""
        self._ring.append(np.zeros((count, 0), np.float32))
        if self.optimize_memory_usage:  # the row at `pos` has had its observation overwritten by the newest's successor
            self._ring.forget_before(self._ring.clock - self._ring.capacity + self.n_envs)

    def _begin(self) -> None:
        self._ring = Ring(self.buffer_size * self.n_envs, 0, self.n_envs)
        self._drawer = self.sampler.attach(self._ring)
        self._drawn = None
        self.batches_drawn = 0
        if self.sampler.schedule is not None:
            warn_if_out_of_reach(self.sampler.schedule, self._ring.capacity, stacklevel=3)


class PrioritizedDictReplayBuffer(PrioritizedReplayBuffer, DictReplayBuffer):
    """SB3's DictReplayBuffer, drawing by priority."""


class PrioritizedNStepReplayBuffer(PrioritizedReplayBuffer, NStepReplayBuffer):
    """SB3's NStepReplayBuffer, drawing by the priority of the first of the n steps."""


_KINDS: dict[type[ReplayBuffer], type[PrioritizedReplayBuffer]] = {
    ReplayBuffer: PrioritizedReplayBuffer,
    DictReplayBuffer: PrioritizedDictReplayBuffer,
    NStepReplayBuffer: PrioritizedNStepReplayBuffer,
}


def _schedule(
    age_weight: Schedule | None,
    decay_steps: float | Literal["auto"] | None,
    min_weight: float | None,
    decay_fraction: float | None,
) -> Schedule | None:
    """The age weights that are asked for; none if nothing is."""
    if all(value is None for value in (age_weight, decay_steps, min_weight, decay_fraction)):
        return None
    return schedule_of(age_weight, decay_steps, min_weight, "age_weight", decay_fraction)
