"""SB3's DQN, SAC and TD3 with prioritised replay: its own training to the bit without priorities, the law with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from neoteny import LinearDecay, PrioritizedSampler
from neoteny import ReplayBuffer as OurBuffer
from neoteny.integrations.sb3 import (
    PrioritizedDictReplayBuffer,
    PrioritizedDQN,
    PrioritizedNStepReplayBuffer,
    PrioritizedReplayBuffer,
    PrioritizedSAC,
    PrioritizedTD3,
)
from oracles import STRICT, p_value


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


BOX = spaces.Box(-1e9, 1e9, (2,), np.float64)
ACTION = spaces.Box(-1, 1, (1,))
PAIRS: dict[str, tuple[Any, Any, str]] = {
    "DQN": (DQN, PrioritizedDQN, "CartPole-v1"),
    "SAC": (SAC, PrioritizedSAC, "Pendulum-v1"),
    "TD3": (TD3, PrioritizedTD3, "Pendulum-v1"),
}
every_pair = pytest.mark.parametrize(("theirs", "ours", "env"), PAIRS.values(), ids=PAIRS)


def agent(kind: Any, env: Any, **options: Any) -> Any:
    return kind(
        "MlpPolicy",
        env,
        seed=3,
        device="cpu",
        **{
            "learning_starts": 60,
            "buffer_size": 150,
            "policy_kwargs": {"net_arch": [16]},
            "train_freq": 4,
            "gradient_steps": 3,
            "batch_size": 50,  # no power of two: a mean's rounding would show
            **options,
        },
    )


def add(buffer: ReplayBuffer, tick: int) -> None:
    """One vector step; each observation is (when it was added, its environment)."""
    envs = buffer.n_envs
    obs = np.stack([np.full(envs, tick), np.arange(envs)], axis=1).astype(np.float64)
    successor = obs + np.array([1, 0])
    if isinstance(buffer, DictReplayBuffer):
        obs, successor = {"stamp": obs}, {"stamp": successor}
    buffer.add(obs, successor, np.zeros((envs, 1)), np.full(envs, tick), np.zeros(envs), [{}] * envs)


def filled(capacity: int, num_envs: int, ticks: int, **options: Any) -> PrioritizedReplayBuffer:
    space = spaces.Dict({"stamp": BOX}) if options.pop("dictionary", False) else BOX
    buffer = PrioritizedReplayBuffer(capacity, space, ACTION, device="cpu", n_envs=num_envs, **options)
    for tick in range(ticks):
        add(buffer, tick)
    return buffer


def stamps_of(batch: Any) -> np.ndarray:
    obs = batch.observations
    return (obs["stamp"] if isinstance(obs, dict) else obs).numpy().astype(np.int64)


# The agents


def run(kind: Any, env: str, n_envs: int, tmp_path: Path, **options: Any) -> tuple[dict[str, torch.Tensor], Any, Any]:
    """Train, save, load with the replay buffer, and go on; the parameters, the logged losses, the agent."""
    model = agent(kind, make_vec_env(env, n_envs, seed=5), **options)
    model.learn(300)
    logged = [model.logger.name_to_value[name] for name in sorted(model.logger.name_to_value) if "train" in name]
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    model = kind.load(tmp_path / "model", make_vec_env(env, n_envs, seed=6), device="cpu")
    model.load_replay_buffer(tmp_path / "buffer")
    model.set_random_seed(9)
    model.learn(120, reset_num_timesteps=False)
    return {name: value.clone() for name, value in model.policy.state_dict().items()}, logged, model


@every_pair
@pytest.mark.parametrize("options", [{"n_envs": 1}, {"n_envs": 3}, {"n_envs": 2, "n_steps": 3}], ids=str)
def test_without_priorities_training_is_sb3s_to_the_bit(
    theirs: Any, ours: Any, env: str, options: dict[str, int], tmp_path: Path, recwarn: Any
) -> None:
    n_step = {"n_steps": options["n_steps"]} if "n_steps" in options else {}
    expected, their_losses, _ = run(theirs, env, options["n_envs"], tmp_path, **n_step)
    recwarn.clear()  # SB3 warns when it loads an agent with n-step returns of its own
    options_of_per = {"replay_buffer_kwargs": {"alpha": 0.0, "beta": 0.7}}
    got, our_losses, model = run(ours, env, options["n_envs"], tmp_path, **n_step, **options_of_per)
    assert not [str(warning.message) for warning in recwarn if "n_steps" in str(warning.message)]
    assert isinstance(model.replay_buffer, PrioritizedReplayBuffer)
    assert model.replay_buffer.full
    assert model._n_updates > 0
    assert our_losses == their_losses
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(got[name], value), name


@every_pair
def test_with_priorities_it_is_not(theirs: Any, ours: Any, env: str, tmp_path: Path) -> None:
    """And the same seed gives the same run."""
    uniform = run(theirs, env, 1, tmp_path)[0]
    ends = [run(ours, env, 1, tmp_path)[0] for _ in range(2)]
    aged = run(ours, env, 1, tmp_path, replay_buffer_kwargs={"decay_steps": 100})[0]
    for name in uniform:
        assert torch.equal(ends[0][name], ends[1][name])
    assert any(not torch.equal(ends[0][name], uniform[name]) for name in uniform)
    assert any(not torch.equal(ends[0][name], aged[name]) for name in uniform)


def td_errors(model: Any, batch: Any, noise: torch.Tensor | None) -> torch.Tensor:
    """|TD error| of a batch, (critics, batch), written from the papers; `noise` is TD3's of its target policy."""
    with torch.no_grad():
        if isinstance(model, DQN):
            ahead = model.q_net_target(batch.next_observations).max(dim=1).values
            now = [model.q_net(batch.observations)[torch.arange(len(batch.actions)), batch.actions[:, 0].long()]]
        else:
            if isinstance(model, TD3):
                assert noise is not None
                action = (model.actor_target(batch.next_observations) + noise.clamp(-0.5, 0.5)).clamp(-1, 1)
                log_prob = torch.zeros(len(batch.actions))
            else:
                action, log_prob = model.actor.action_log_prob(batch.next_observations)
            values = torch.stack(model.critic_target(batch.next_observations, action))[..., 0]
            alpha = model.log_ent_coef.exp() if isinstance(model, SAC) else 0.0
            ahead = values.min(dim=0).values - alpha * log_prob
            now = [value[:, 0] for value in model.critic(batch.observations, batch.actions)]
        target = batch.rewards[:, 0] + (1 - batch.dones[:, 0]) * 0.99 * ahead
        return torch.stack([(value - target).abs() for value in now])


@every_pair
@pytest.mark.parametrize("n_envs", [1, 3])
def test_priorities_and_loss_of_a_step_by_hand(theirs: Any, ours: Any, env: str, n_envs: int) -> None:
    """After one gradient step, (|TD error| + eps)^alpha is the priority, and the loss is the weighted mean."""
    model = agent(ours, make_vec_env(env, n_envs, seed=5), learning_starts=1_000, buffer_size=600)
    model.learn(120)
    model.learning_starts = 0
    buffer = model.replay_buffer
    rng = np.random.default_rng(0)
    buffer.sample(400)
    buffer.update_priorities(rng.exponential(5, 400))  # priorities that differ, so that weights do
    law = buffer.probabilities()

    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    alpha = model.log_ent_coef.detach().clone() if isinstance(model, SAC) else None
    seen: list[Any] = []
    own = buffer._gather
    buffer._gather = lambda slots, env: seen.append((slots, own(slots, env))) or seen[-1][1]
    torch.manual_seed(1)
    model.train(gradient_steps=1, batch_size=50)
    weights = buffer.weights[:, 0].double()
    logged = model.logger.name_to_value["train/loss" if theirs is DQN else "train/critic_loss"]

    (slots, batch), after = seen[0], buffer.probabilities().ravel()
    model.policy.load_state_dict(before)
    torch.manual_seed(1)
    noise = torch.zeros_like(batch.actions, dtype=torch.float32).normal_(0, 0.2) if theirs is TD3 else None
    if alpha is not None:
        model.actor.action_log_prob(batch.observations)  # the draw that SB3 makes first
        model.log_ent_coef.data.copy_(alpha)
    errors = td_errors(model, batch, noise).double()

    # weights: ((N P)^-beta) / max, which is (p / p_min)^-beta of the batch
    p = torch.as_tensor(law.ravel()[slots])
    torch.testing.assert_close(weights, (p / p.min()) ** -0.4, rtol=1e-5, atol=0)
    assert weights.min() < 0.9
    huber = torch.where(errors < 1, errors**2 / 2, errors - 0.5)
    losses = {DQN: huber, TD3: errors**2, SAC: errors**2 / 2}[theirs]
    assert logged == pytest.approx(float((weights * losses.sum(dim=0)).mean()), rel=1e-4)
    assert logged != pytest.approx(float(losses.sum(dim=0).mean()), rel=1e-2)

    # the law after it: in proportion to (mean |TD error| + eps)^0.6, of the last draw of a transition that came twice
    expected = dict(zip(slots.tolist(), (errors.mean(dim=0) + 1e-6) ** 0.6, strict=True))
    chosen = sorted(expected)
    wanted = np.array([float(expected[slot]) for slot in chosen])
    np.testing.assert_allclose(after[chosen] / after[chosen].sum(), wanted / wanted.sum(), rtol=1e-3)
    others = np.setdiff1d(np.flatnonzero(law.ravel() > 0), chosen)
    np.testing.assert_allclose(after[others] / after[others[0]], law.ravel()[others] / law.ravel()[others[0]])


@every_pair
def test_the_gradient_is_that_of_the_weighted_loss(theirs: Any, ours: Any, env: str) -> None:
    """Of one batch, the step of SGD is linear in the weights: that of a + b is the sum of two, that of 0 is none."""
    sgd = {"net_arch": [16], "optimizer_class": torch.optim.SGD}
    fixed = {"ent_coef": 0.1} if theirs is SAC else {}
    model = agent(
        ours, make_vec_env(env, 1, seed=5), learning_starts=1_000, policy_kwargs=sgd, learning_rate=0.1, **fixed
    )
    model.learn(100)
    model.max_grad_norm = 1e9  # DQN's gradients are clipped
    critic = model.q_net if theirs is DQN else model.critic
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    slots = np.arange(50)

    def step(weights: torch.Tensor) -> torch.Tensor:
        model.policy.load_state_dict(before)
        torch.manual_seed(0)

        def sample(size: int, env: Any = None) -> Any:
            model.replay_buffer.batches_drawn += 1
            model.replay_buffer.weights = weights
            return model.replay_buffer._gather(slots, env)

        model.replay_buffer.sample = sample
        old = torch.nn.utils.parameters_to_vector(critic.parameters()).detach().clone()
        model.train(gradient_steps=1, batch_size=50)
        return torch.nn.utils.parameters_to_vector(critic.parameters()).detach() - old

    a, b = torch.rand(2, 50, 1)
    assert not step(0 * a).any()
    torch.testing.assert_close(step(a + b), step(a) + step(b), rtol=1e-3, atol=1e-6)
    assert (step(a) - step(b)).abs().max() > 1e-5


# The buffer

FILLS = {
    "part full": (100, 1, 37),
    "wrapped": (100, 1, 263),
    "part full, 4 envs": (100, 4, 9),
    "wrapped, 4 envs": (100, 4, 81),
    "wrapped, 7 envs that do not divide": (100, 7, 43),
}


@pytest.mark.parametrize(("capacity", "num_envs", "ticks"), FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("ages", [{}, {"decay_steps": 60.5, "min_weight": 0.07}], ids=["PER", "PER x age"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dictionary": True},
        {"n_steps": 1, "gamma": 0.9},
        {"optimize_memory_usage": True, "handle_timeout_termination": False},
    ],
    ids=["plain", "dict", "n-step", "memory"],
)
def test_the_law_is_that_of_our_own_buffer(
    capacity: int, num_envs: int, ticks: int, ages: dict[str, float], options: dict[str, Any]
) -> None:
    """The same priorities in our own ReplayBuffer; what SB3's batches hold is drawn by its law."""
    theirs = filled(capacity, num_envs, ticks, **options, **ages)
    schedule = LinearDecay(**ages) if ages else None
    rows = capacity // num_envs
    ours = OurBuffer(
        rows * num_envs,
        {"stamp": (2,), "reward": (), "terminated": (), "truncated": ()},
        PrioritizedSampler(schedule),
        num_envs=num_envs,
    )
    for tick in range(ticks):
        stamp = np.stack([np.full(num_envs, tick), np.arange(num_envs)], axis=1).astype(np.float32)
        zeros = np.zeros(num_envs, np.float32)
        ours.add(stamp=stamp, reward=zeros, terminated=zeros, truncated=zeros)

    def error(stamp: np.ndarray) -> np.ndarray:  # of each transition, whichever buffer it is drawn from
        return (stamp[:, 0] * 7 + stamp[:, 1] * 3) % 11 + 0.1

    np.random.seed(0)  # noqa: NPY002
    for _ in range(6):
        theirs.update_priorities(error(stamps_of(theirs.sample(2_000))))
        batch = ours.sample(2_000)
        ours.update_priorities(batch, error(batch["stamp"].astype(np.int64)))

    law = np.zeros((ticks, num_envs))
    held = ours.law()[::-1]  # the oldest first
    oldest = ticks - len(held) // num_envs
    law[oldest:] = held.reshape(-1, num_envs)
    if "optimize_memory_usage" in options and theirs.full:
        law[oldest] = 0.0  # its observation has been overwritten
        law /= law.sum()
    np.random.seed(1)  # noqa: NPY002
    batch = theirs.sample(100_000)
    stamps = stamps_of(batch)
    counts = np.zeros_like(law)
    np.add.at(counts, (stamps[:, 0], stamps[:, 1]), 1)
    assert p_value(counts.ravel(), law.ravel()) > STRICT
    now = theirs.probabilities()
    for row, env in np.ndindex(now.shape):
        age = (theirs.pos - 1 - row) % rows
        if age < ticks and (theirs.full or row < theirs.pos):
            assert now[row, env] == pytest.approx(law[ticks - 1 - age, env], rel=1e-9)
    successors = batch.next_observations
    successors = (successors["stamp"] if isinstance(successors, dict) else successors).numpy()
    np.testing.assert_array_equal(successors, stamps + np.array([1, 0]))


def test_n_step_returns_of_several_environments_are_sb3s() -> None:
    ours, theirs = (
        kind(60, BOX, ACTION, device="cpu", n_envs=3, n_steps=3, gamma=0.9)
        for kind in (PrioritizedNStepReplayBuffer, NStepReplayBuffer)
    )
    rng = np.random.default_rng(0)
    for tick in range(50):
        obs = np.stack([np.full(3, tick), np.arange(3)], axis=1).astype(np.float64)
        reward, done = rng.normal(size=3), (rng.random(3) < 0.2).astype(np.float32)
        for buffer in (ours, theirs):
            buffer.add(obs, obs + 0.5, np.zeros((3, 1)), reward, done, [{}] * 3)
    slots = rng.integers(0, 60, 500)
    got = ours._gather(slots, None)
    for index in range(60):  # SB3's own batch of one environment at a time: what it draws is what is asked for
        np.random.seed(0)  # noqa: NPY002
        many = theirs._get_samples(np.full(64, index // 3))
        same = (many.observations[:, 1] == index % 3).numpy()
        for mine, its in zip(got, many, strict=True):
            rows = mine[slots == index]
            torch.testing.assert_close(rows, its[same][:1].expand_as(rows))


@pytest.mark.parametrize("options", [{}, {"decay_steps": 50}], ids=["PER", "PER x age"])
def test_priorities_are_saved_and_loaded(options: dict[str, Any], tmp_path: Path) -> None:
    model = agent(PrioritizedSAC, make_vec_env("Pendulum-v1", 2), replay_buffer_kwargs=options)
    model.learn(200)
    model.save_replay_buffer(tmp_path / "buffer")
    before = model.replay_buffer
    model.load_replay_buffer(tmp_path / "buffer")
    after = model.replay_buffer
    assert after is not before
    assert np.ptp(before.probabilities()) > 1e-4
    np.testing.assert_array_equal(before.probabilities(), after.probabilities())
    for _ in range(3):  # beta rises alike, what is added counts alike
        batches = []
        for buffer in (before, after):
            np.random.seed(0)  # noqa: NPY002
            batches.append((buffer.sample(40).observations, buffer.weights))
            buffer.update_priorities(np.linspace(0, 3, 40))
            buffer.add(np.ones((2, 3)), np.ones((2, 3)), np.zeros((2, 1)), np.ones(2), np.zeros(2), [{}, {}])
        for mine, its in zip(*batches, strict=True):
            torch.testing.assert_close(mine, its, rtol=0, atol=0)
    after.reset()
    with pytest.raises(ValueError, match="nothing is stored yet"):
        after.sample(1)


def test_a_new_transition_has_the_largest_priority_seen() -> None:
    buffer = filled(100, 2, 10)
    buffer.sample(500)
    buffer.update_priorities(np.full(500, 3.0))
    buffer.sample(500)
    buffer.update_priorities(np.full(500, 0.5))
    add(buffer, 10)
    law = buffer.probabilities()
    np.testing.assert_allclose(law[10] / law[0], ((3 + 1e-6) / (0.5 + 1e-6)) ** 0.6)


def test_beta_rises_with_every_batch() -> None:
    buffer = filled(10, 1, 2, beta=0.5, beta_step=0.1)
    buffer.sample(50)
    buffer.update_priorities(np.where(stamps_of(buffer.sample(50))[:, 0] == 0, 1.0, 4.0))
    smallest = [float(buffer.weights.min()) for _ in range(6) if buffer.sample(50)]
    expected = [((4 + 1e-6) / (1 + 1e-6)) ** (-0.6 * min(1, 0.7 + 0.1 * n)) for n in range(6)]
    np.testing.assert_allclose(smallest, expected, rtol=1e-5)


def test_vec_normalize() -> None:
    for n_envs in (1, 2):
        env = VecNormalize(make_vec_env("Pendulum-v1", n_envs))
        model = agent(PrioritizedSAC, env)
        model.learn(100)
        raw, normal = (model.replay_buffer._gather(np.arange(20), e) for e in (None, env))
        assert not torch.allclose(raw.rewards, normal.rewards)
        torch.testing.assert_close(normal.rewards, torch.as_tensor(env.normalize_reward(raw.rewards.numpy())))


def test_dict_observations_and_n_steps_find_their_kind() -> None:
    assert type(filled(10, 1, 3, dictionary=True)) is PrioritizedDictReplayBuffer
    model = agent(PrioritizedDQN, "CartPole-v1", n_steps=3, gamma=0.9)
    assert type(model.replay_buffer) is PrioritizedNStepReplayBuffer
    assert (model.replay_buffer.n_steps, model.replay_buffer.gamma) == (3, 0.9)
    with pytest.warns(UserWarning, match="`n_steps=3` is ignored"):  # as SB3 warns of every buffer class that is named
        agent(PrioritizedDQN, "CartPole-v1", n_steps=3, replay_buffer_class=PrioritizedReplayBuffer)


@pytest.mark.parametrize("ticks", [20, 130])
def test_a_run_under_way_is_joined(ticks: int) -> None:
    theirs = ReplayBuffer(50, BOX, ACTION, device="cpu", n_envs=2)
    for tick in range(ticks):
        add(theirs, tick)
    ours = PrioritizedReplayBuffer.from_buffer(theirs, decay_steps=20)
    assert ours.observations is theirs.observations
    weights = [max(0.1, 1 - (2 * steps + 1) / 20) for steps in range(min(25, ticks))]
    law = ours.probabilities()[(theirs.pos - 1 - np.arange(len(weights))) % 25]
    np.testing.assert_allclose(law, np.repeat(weights, 2).reshape(-1, 2) / (2 * sum(weights)))
    stamps = stamps_of(ours.sample(500))
    assert stamps[:, 0].max() == ticks - 1
    add(ours, ticks)
    assert stamps_of(ours.sample(500))[:, 0].max() == ticks


def test_what_is_refused() -> None:
    model = agent(PrioritizedDQN, "CartPole-v1")
    for message, attempt in {
        "hindsight replay cannot be weighted": lambda: filled(10, 1, 0, goal_selection_strategy="future"),
        "X: hindsight replay": lambda: type("X", (PrioritizedReplayBuffer, HerReplayBuffer), {}),
        "alpha must be in .0, 1., got 2": lambda: filled(10, 1, 0, alpha=2),
        "decay_steps must be": lambda: filled(10, 1, 0, decay_steps=-1),
        "no n-step returns for Dict": lambda: filled(10, 1, 0, dictionary=True, n_steps=3),
        "nothing is stored yet": lambda: filled(10, 1, 0).sample(3),
        "batch_size must be >= 1, got 0": lambda: filled(10, 1, 3).sample(0),
        "errors must be finite, got nan": lambda: _with_errors(filled(10, 1, 3), [np.nan]),
        "one error for each transition drawn": lambda: _with_errors(filled(10, 1, 3), [1.0, 2.0]),
        "Own is none: what it draws by": lambda: PrioritizedReplayBuffer.from_buffer(
            type("Own", (ReplayBuffer,), {})(10, BOX, ACTION, device="cpu")
        ),
        "PrioritizedDQN needs replay_buffer_class=PrioritizedReplayBuffer, its default, got ReplayBuffer; for replay "
        "without priorities use DQN": lambda: agent(PrioritizedDQN, "CartPole-v1", replay_buffer_class=ReplayBuffer),
        "PrioritizedDQN needs a PrioritizedReplayBuffer, and this replay buffer is a ReplayBuffer": lambda: (
            setattr(model, "replay_buffer", ReplayBuffer(10, BOX, ACTION)),
            model.train(1, 8),
        ),
    }.items():
        with pytest.raises((TypeError, ValueError), match=message):
            attempt()


def _with_errors(buffer: PrioritizedReplayBuffer, errors: list[float]) -> None:
    buffer.sample(1)
    buffer.update_priorities(errors)


def test_a_version_of_sb3_with_another_loss_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would train without weights, and priorities would stay what they are."""

    def train(self: Any, gradient_steps: int, batch_size: int = 100) -> None:
        self.replay_buffer.sample(batch_size)

    monkeypatch.setattr(DQN, "train", train)
    with pytest.raises(RuntimeError, match=r"losses of 0 batches .* and drew 1, so priorities cannot be relied on"):
        agent(PrioritizedDQN, "CartPole-v1", train_freq=1, gradient_steps=1).learn(70)


@pytest.mark.slow
@pytest.mark.parametrize("ages", [{}, {"decay_steps": 3_000}], ids=["PER", "PER x age"])
def test_sac_learns_pendulum(ages: dict[str, float]) -> None:
    model = PrioritizedSAC(
        "MlpPolicy",
        "Pendulum-v1",
        seed=1,
        learning_rate=1e-3,
        learning_starts=500,
        buffer_size=20_000,
        policy_kwargs={"net_arch": [64, 64]},
        replay_buffer_kwargs=ages,
        device="cpu",
    )
    model.learn(8_000)
    mean, _ = evaluate_policy(model, make_vec_env("Pendulum-v1", 1, seed=5), n_eval_episodes=10, warn=False)
    assert mean > -400
