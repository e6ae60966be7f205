"""RLlib's episode buffer, drawn by age: whole episodes leave it, so position is not time and each index has a stamp."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from ray.rllib.core import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils import force_list
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer

from neoteny.integrations.stamps import StampedRows
from neoteny.replay.ages.ageing import Ints, Schedule
from neoteny.replay.sampling import schedule_of

REPLAY_STATE = "age_weighted_replay"
"""Where a state, the buffer's or its algorithm's, holds what is ours."""
ONE_AGENT = (
    "age-weighted replay in RLlib is for one agent: for a multi-agent config use RLlib's own multi-agent buffers"
)


class AgeWeightedEpisodeReplayBuffer(EpisodeReplayBuffer):
    """RLlib's EpisodeReplayBuffer, whose ``sample`` draws each transition by its age."""

    def __init__(
        self,
        capacity: int,
        *,
        decay_steps: float | Literal["auto"] | None = None,
        min_weight: float | None = None,
        age_weight: Schedule | None = None,
        decay_fraction: float | None = None,
        batch_size_B: int = 16,
        batch_length_T: int = 64,
        metrics_num_episodes_for_smoothing: int = 100,
    ) -> None:
        super().__init__(
            capacity=check_capacity(capacity),
            batch_size_B=batch_size_B,
            batch_length_T=batch_length_T,
            metrics_num_episodes_for_smoothing=metrics_num_episodes_for_smoothing,
        )
        # RLlib seeds NumPy's own generator with config.seed just before it makes its buffer, and this one never.
        self.rng: Any = np.random.default_rng(np.random.randint(2**32, size=4, dtype=np.uint32))  # noqa: NPY002
        self._rows = StampedRows(schedule_of(age_weight, decay_steps, min_weight, "age_weight", decay_fraction))
        self._lanes = 1

    def add(self, episodes: list[SingleAgentEpisode] | SingleAgentEpisode) -> None:
        """Store fragments of episodes, each transition with its stamp."""
        fragments: list[SingleAgentEpisode] = force_list(episodes)
        if any(isinstance(fragment, MultiAgentEpisode) for fragment in fragments):
            raise ValueError(ONE_AGENT)
        if len({fragment.id_ for fragment in fragments}) < len(fragments):
            for fragment in fragments:  # several of one episode follow each other in time
                self.add(fragment)
            return
        self._make_room(fragments)
        clock, evicted = self._num_timesteps_added, self._num_episodes_evicted
        super().add(fragments)
        self._lanes = max(self._lanes, sum(not fragment.is_done for fragment in fragments))
        steps = _vector_steps(fragments, self._lanes)
        counts = np.bincount(steps)
        stamps = clock + (np.cumsum(counts) - counts)[steps]
        owners = [self.episode_id_to_index.get(fragment.id_, -1) for fragment in fragments]
        owner = np.repeat(np.array(owners, np.int64), [len(fragment) for fragment in fragments])
        order = np.argsort(stamps, kind="stable")
        self._rows.add(stamps[order], owner[order])
        held = order[owner[order] >= 0]
        newest = self._indices[len(self._indices) - held.size :]
        places = np.cumsum(owner >= 0) - 1
        self._indices[len(self._indices) - held.size :] = [newest[place] for place in places[held].tolist()]
        if self._num_episodes_evicted > evicted:  # one add was more than the buffer holds
            self._rows.drop(self._num_episodes_evicted, len(self._rows) - len(self._indices))

    def _make_room(self, fragments: list[SingleAgentEpisode]) -> None:
        """Evict the oldest episodes, as RLlib would while it adds.

        RLlib's own eviction copies every index, and fails when the oldest episode is the one that grows.
        """
        room = self.capacity - sum(len(fragment) for fragment in fragments)
        steps = episodes = 0
        while self.episodes and self._num_timesteps > room:
            if len(self.episodes) == 1 and all(fragment.id_ == self.episodes[0].id_ for fragment in fragments):
                break  # the only episode may outgrow the buffer
            oldest = self.episodes.popleft()
            del self.episode_id_to_index[oldest.id_]
            self._num_timesteps -= len(oldest)
            self._num_episodes_evicted += 1
            episodes, steps = episodes + 1, steps + len(oldest)
        if episodes:
            looked, stay = self._rows.drop(self._num_episodes_evicted, steps)
            self._indices[:looked] = [self._indices[i] for i in stay.tolist()]
            self._log_eviction(episodes, steps)

    def _log_eviction(self, episodes: int, steps: int) -> None:
        none: dict[str, int] = {}
        self._update_add_metrics(
            num_episodes_added=0,
            num_env_steps_added=0,
            num_episodes_evicted=episodes,
            num_env_steps_evicted=steps,
            agent_to_num_episodes_added=none,
            agent_to_num_steps_added=none,
            agent_to_num_episodes_evicted={DEFAULT_AGENT_ID: episodes},
            agent_to_num_steps_evicted={DEFAULT_AGENT_ID: steps},
            module_to_num_episodes_added=none,
            module_to_num_steps_added=none,
            module_to_num_episodes_evicted={DEFAULT_MODULE_ID: episodes},
            module_to_num_steps_evicted={DEFAULT_MODULE_ID: steps},
        )

    def sample(self, num_items: int | None = None, *, n_step: Any = None, **options: Any) -> Any:
        """What EpisodeReplayBuffer.sample returns, drawn by age.

        Departs from it where fewer than n_step transitions are left of the episode: the return is of as many as there
        are, and "n_step" says so. RLlib discounts as if there were n_step, and returns more items than were asked for.
        """
        own = self.rng
        if options.get("sample_episodes") and not options.get("batch_length_T") and isinstance(n_step, int):
            n_step = (n_step, n_step + 1)
        size = num_items or options.get("batch_size_B") or self.batch_size_B
        self.rng = _Draws(self, own, size)
        try:
            return super().sample(num_items, n_step=n_step, **options)
        finally:
            self.rng = own

    def get_state(self) -> dict[str, Any]:
        """RLlib's state, the stamps and the generator's."""
        ours = {**self._rows.state(), "lanes": self._lanes, "rng": self.rng.bit_generator.state}
        return {**super().get_state(), "_indices": list(self._indices), REPLAY_STATE: ours}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Hold that instead. In the state of another EpisodeReplayBuffer the order of its indices gives the stamps."""
        replay = state.get(REPLAY_STATE)
        rng = _generator(replay["rng"]) if replay and "rng" in replay else self.rng
        self.episodes: deque[SingleAgentEpisode] = deque()  # RLlib would keep the episodes that are here
        super().set_state({**state, "_indices": list(state["_indices"])})
        added, held = self._num_timesteps_added, len(self._indices)
        ours = replay or {
            "stamps": np.arange(added - held, added),
            "owners": np.array([index[0] for index in self._indices], np.int64),
            "newest": added - 1,
        }
        self._rows.restore(ours)
        self._lanes = ours.get("lanes", 1)
        self.rng = rng


class _Draws:
    """Stands in for the buffer's generator while RLlib samples: an index that would be drawn evenly is drawn by age."""

    def __init__(self, buffer: AgeWeightedEpisodeReplayBuffer, rng: np.random.Generator, size: int) -> None:
        self._buffer, self._rng, self._size = buffer, rng, size
        self._left: list[int] = []
        self._last = 0

    def integers(self, low: int, high: int | None = None) -> int:
        """An index, if only `low` is given; else an n-step from low up to high, cut where the episode ends."""
        buffer = self._buffer
        if high is None:
            if not self._left:
                rows = buffer._rows.draw(self._rng, self._size, buffer._num_timesteps_added)
                self._left = rows[::-1].tolist()
            self._last = self._left.pop()
            return self._last
        n_step = low if high == low + 1 else int(self._rng.integers(low, high))
        if n_step == 1:
            return 1
        episode, start = buffer._indices[self._last][:2]
        return min(n_step, len(buffer.episodes[episode - buffer._num_episodes_evicted]) - start)


def _generator(state: Any) -> np.random.Generator:
    """The generator of a state, which is plain data: a pickle could run code, and is not read."""
    if not isinstance(state, Mapping) or state.get("bit_generator") != "PCG64":
        raise ValueError(
            f"a buffer's state has its generator as the plain data of a PCG64, got {type(state).__name__}: earlier "
            "versions of neoteny wrote a pickle, which is not read; drop 'rng' from the state to restore the rest"
        )
    generator = np.random.default_rng(0)
    generator.bit_generator.state = dict(state)
    return generator


def _vector_steps(fragments: list[SingleAgentEpisode], lanes: int) -> Ints:
    """For each transition of one add, in which of its vector steps it was made.

    lanes: how many environments there are. The fragments of one follow each other. Of those of several, one that goes
    on with an episode began with the add, and one that is not done ended with it; only an episode that began and ended
    within the add is placed by guess, at its end.
    """
    lengths = [len(fragment) for fragment in fragments]
    total = sum(lengths)
    if lanes == 1 or not fragments:
        return np.arange(total)
    goes_on = [fragment.t_started > 0 for fragment in fragments]
    last = max((total + goes_on.count(False)) // lanes, *lengths)  # a reset takes the place of a transition
    starts = [0 if on else last - length for on, length in zip(goes_on, lengths, strict=True)]
    return np.concatenate([np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)])


def check_capacity(capacity: Any) -> int:
    """`capacity`, or an error if it is not a number of transitions."""
    if isinstance(capacity, bool) or not isinstance(capacity, (int, np.integer)) or capacity < 1:
        raise ValueError(f"capacity must be a whole number of transitions >= 1, got {capacity!r}")
    return int(capacity)
