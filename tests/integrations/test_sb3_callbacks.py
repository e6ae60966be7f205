"""Plasticity of other people's agents: measured as by hand, and restored as it should be."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import ConvertCallback
from stable_baselines3.common.logger import KVWriter, Logger

from neoteny.integrations.sb3 import (
    AgeWeightedReplayBuffer,
    PlasticityCallback,
    ReDoCallback,
    ResetCallback,
    ShrinkPerturbCallback,
)
from neoteny.integrations.sb3.passes import hidden_of, passes
from neoteny.plasticity.neurons import dormant_score
from neoteny.remedies.torch import HiddenModule, forget, fresh, recycle

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what SBX imports uses what JAX has deprecated
    import sbx

MEASURES = ["grama_inactive", "dormant", "gradient_l2", "fresh_gradient_share"]
SMALL = {"learning_starts": 60, "buffer_size": 400, "policy_kwargs": {"net_arch": [16, 16]}, "seed": 0}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class Kept(KVWriter):
    """A logger's output that remembers."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        self.lines.append(dict(key_values))

    def close(self) -> None: ...


def agent(kind: Any, **options: Any) -> Any:
    env = "CartPole-v1" if kind in (DQN, sbx.DQN) else "Pendulum-v1"
    device = {"device": "cpu"} if kind.__module__.startswith("stable") else {}
    return kind("MlpPolicy", env, **copy.deepcopy({**SMALL, **device, **options}))  # SB3 writes into policy_kwargs


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SAC, TD3, DDPG, DQN, sbx.SAC, sbx.TD3, sbx.DDPG, sbx.DQN], ids=str)
def test_measures_go_to_their_own_logger(kind: Any) -> None:
    replay = {"replay_buffer_class": AgeWeightedReplayBuffer, "replay_buffer_kwargs": {"decay_steps": 200}}
    model, kept = agent(kind, **replay), Kept()
    model.set_logger(Logger(None, [kept]))
    callback = PlasticityCallback(probe_freq=50, samples=32)
    model.learn(120, callback=callback, log_interval=1)
    model.logger.dump()
    measures = {name: value for line in kept.lines for name, value in line.items() if name.startswith("plasticity/")}
    networks = ["critic"] if kind in (DQN, sbx.DQN) else ["critic", "actor"]
    assert set(measures) == {f"plasticity/{network}/{name}" for network in networks for name in MEASURES}
    for name, value in measures.items():
        assert np.isfinite(value), name
        assert 0 <= value <= 1 or "gradient" in name, name


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SAC, TD3, sbx.SAC], ids=str)
def test_measuring_does_not_change_the_run(kind: Any) -> None:
    ends = []
    for callback in (None, PlasticityCallback(probe_freq=37, samples=16)):
        model = agent(kind)
        model.learn(150, callback=callback)
        ends.append(model.predict(np.ones((1, 3), np.float32), deterministic=True)[0])
    assert (ends[0] == ends[1]).all()


@pytest.mark.parametrize("kind", [SAC, TD3, DQN], ids=str)
def test_gradients_are_those_that_train(kind: Any) -> None:
    """With the batch and the randomness of an update, the collected gradient is what SB3 leaves in ``.grad``."""
    model = agent(kind, gradient_steps=1)
    model.learn(100)
    batch = model.replay_buffer.sample(32)
    model.replay_buffer.sample = lambda *_, **__: batch
    before = copy.deepcopy(model.policy.state_dict())
    if kind is TD3:
        model.target_policy_noise = 1e-9  # theirs draws it by another call
    if kind is SAC:
        model.ent_coef_optimizer, model.ent_coef_tensor = None, torch.tensor(0.0)
        model.log_ent_coef = None
    critic = model.q_net if kind is DQN else model.critic
    mine = passes(model, batch, seed=5)["critic"].gradients
    torch.manual_seed(5)
    if kind is SAC:  # the order in which SAC draws its two actions
        model.actor.action_log_prob(batch.observations)
        state = torch.get_rng_state()
        torch.manual_seed(5)
        fixed = model.actor.action_log_prob(batch.next_observations)
        own = model.actor.action_log_prob
        model.actor.action_log_prob = lambda obs: fixed if obs is batch.next_observations else own(obs)
        torch.set_rng_state(state)
    grads: list[Any] = []
    optimizer = model.policy.optimizer if kind is DQN else critic.optimizer
    model.max_grad_norm = 1e9
    step = optimizer.step
    optimizer.step = lambda: grads.extend(p.grad.numpy().copy() for p in critic.parameters()) or step()
    model.train(1, 32)
    assert len(grads) == len(mine)
    for theirs, ours in zip(grads, mine, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-4)
    assert before.keys() == model.policy.state_dict().keys()


def test_fresh_gradient_share_by_hand() -> None:
    """Uniform: the newest 32 of 100 weigh 0.32; SWD with a floor of 0 that reaches no further than 30: all."""
    model = agent(TD3)
    model.learn(100)
    shares = {}
    for name, buffer in {
        "uniform": model.replay_buffer,
        "young": AgeWeightedReplayBuffer.from_buffer(model.replay_buffer, decay_steps=30, min_weight=0),
    }.items():
        model.replay_buffer = buffer
        callback = PlasticityCallback(samples=32)
        callback.init_callback(model)
        newest = passes(model, buffer._get_samples(99 - np.arange(32)), 0)["critic"].gradients
        measures = callback.measure()
        norm = np.sqrt(sum((g**2).sum() for g in newest))
        shares[name] = measures["critic/fresh_gradient_share"] * measures["critic/gradient_l2"] / norm
    assert shares["uniform"] == pytest.approx(0.32, rel=1e-3)
    assert shares["young"] == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("after", [0, 20, 100, 375])
def test_pinned_rows_are_not_the_newest(after: int) -> None:
    """Demonstrations lie before the ring: just after it has gone around, the newest lie at its end, not among them."""
    model = agent(TD3, learning_starts=10**6)
    model.learn(30)
    buffer = AgeWeightedReplayBuffer.from_buffer(model.replay_buffer, decay_steps=50, min_weight=0)
    buffer.pin(0.25)
    model.replay_buffer = buffer
    model.learn(after, reset_num_timesteps=False)
    callback, asked = PlasticityCallback(samples=32), []
    callback.init_callback(model)
    own = callback._passes
    callback._passes = lambda held, slots: asked.append(slots) or own(held, slots)  # type: ignore[method-assign]
    measures = callback.measure()
    if after == 0:  # nothing but demonstrations: nothing is fresh
        assert measures["critic/fresh_gradient_share"] == measures["actor/fresh_gradient_share"] == 0
        return
    numbers = np.arange(30, 30 + after)  # when each was added: the first 30 stay, the rest goes around 370 slots
    where = 30 + (numbers - 30) % 370
    newest = where[::-1][: min(after, 32)]
    assert asked[1].tolist() == np.resize(newest, 32).tolist()
    fresh_norm = np.sqrt(sum((g**2).sum() for g in own(buffer, asked[1])["critic"].gradients))
    share = measures["critic/fresh_gradient_share"] * measures["critic/gradient_l2"] / fresh_norm
    weights = np.maximum(0, 1 - np.arange(1, min(after, 370) + 1) / 50)
    assert share == pytest.approx(0.75 * weights[:32].sum() / weights.sum(), rel=1e-3)


@pytest.mark.parametrize("kind", [PPO, A2C, sbx.PPO], ids=str)
@pytest.mark.parametrize("callback", [PlasticityCallback, ReDoCallback, ResetCallback], ids=lambda kind: kind.__name__)
def test_an_agent_without_a_replay_buffer_is_refused_before_it_trains(kind: Any, callback: Any) -> None:
    steps: list[int] = []
    model = kind("MlpPolicy", "Pendulum-v1", n_steps=8, **({} if kind is A2C else {"batch_size": 8}))
    callbacks = [ConvertCallback(lambda *_: steps.append(1) or True), callback()]
    with pytest.raises(TypeError, match=r"no measures for|changes actors and critics, and|of SBX has Flax's") as caught:
        model.learn(64, callback=callbacks)
    assert steps == []
    assert kind.__name__ in str(caught.value)


class Images(gym.Env):
    observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)

    def __init__(self, discrete: bool) -> None:
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, False, self.np_random.random() < 0.1, {}


@pytest.mark.parametrize("kind", [DQN, SAC], ids=str)
def test_dormant_units_are_recycled_in_convolutions_too(kind: Any) -> None:
    """Made dormant on purpose, in each kind of layer: found, given new weights in, none out; the rest is as it was."""
    options = {**copy.deepcopy(SMALL), "buffer_size": 50, "learning_starts": 20, "batch_size": 8}
    model = kind("CnnPolicy", Images(kind is DQN), device="cpu", **options)
    model.learn(30)
    networks = [model.q_net, model.q_net_target] if kind is DQN else [model.critic, model.critic_target]
    layers = hidden_of(networks[0])
    names = {unit.layer for unit in layers}
    assert {"features_extractor.cnn.0", "features_extractor.cnn.4", "features_extractor.linear.0"} <= names
    assert len(layers) == (4 + 2 if kind is DQN else 4 + 2 * 2)
    with torch.no_grad():
        for unit in layers:
            layer = networks[0].get_submodule(unit.layer)
            layer.bias[3], layer.weight[3] = -1.0, 0.0
    before = [copy.deepcopy(network.state_dict()) for network in networks]
    obs = model.replay_buffer.sample(16).observations
    action = () if kind is DQN else (torch.zeros(16, 2),)
    told = networks[0](obs, *action)
    callback = ReDoCallback(every=1, tau=0.0, samples=500)  # every transition is seen
    callback.init_callback(model)
    callback._on_training_start()
    callback.last = model._n_updates - 1
    callback._on_step()
    after = networks[0](obs, *action)
    for a, b in zip(told, after, strict=True):
        torch.testing.assert_close(a, b)
    for network, old in zip(networks, before, strict=True):
        for unit in layers:
            weight, was = network.get_submodule(unit.layer).weight, old[f"{unit.layer}.weight"]
            if network is networks[0]:
                assert (weight[3] != 0).any()
            else:
                torch.testing.assert_close(weight[3], networks[0].get_submodule(unit.layer).weight[3])
            if unit.layer == "features_extractor.cnn.0":  # reads pixels, of which none was recycled
                live = dormant_score(callback.passes["critic"].activations[unit.layer]) > 0
                assert live.sum() > 20
                assert (weight[live] == was[live]).all()


def test_recycling_by_hand() -> None:
    """A convolution of 2 channels read flat over 4 positions, then a unit of 3, then the head."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 2), torch.nn.Flatten(), torch.nn.Linear(8, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)
    )
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(5, 1, 3, 3)).sum().backward()
    optimizer.step()
    before = copy.deepcopy(net.state_dict())
    moments = {name: optimizer.state[p]["exp_avg"].clone() for name, p in net.named_parameters()}
    hidden = [HiddenModule("0", ("2",)), HiddenModule("2", ("4",))]
    new = fresh(net)
    changed = recycle(net, new, hidden, {"0": np.array([0.0, 1.0]), "2": np.array([2.0, 0.02, 0.9])}, 0.02)
    forget(optimizer, net, changed, restart=False)
    state = net.state_dict()
    assert (state["0.weight"][0] == new["0.weight"][0]).all()
    assert (state["0.weight"][1] == before["0.weight"][1]).all()
    assert (state["2.weight"][:, :4] == 0).all()  # the positions of channel 0
    assert (state["2.weight"][1, 4:] == new["2.weight"][1, 4:]).all()
    assert (state["2.weight"][[0, 2], 4:] == before["2.weight"][[0, 2], 4:]).all()
    assert (state["2.bias"] == torch.stack([before["2.bias"][0], new["2.bias"][1], before["2.bias"][2]])).all()
    assert (state["4.weight"] == before["4.weight"] * torch.tensor([1.0, 0.0, 1.0])).all()
    assert (state["4.bias"] == before["4.bias"]).all()
    for name, p in net.named_parameters():
        touched = changed.get(name, torch.zeros_like(p, dtype=torch.bool))
        assert (optimizer.state[p]["exp_avg"] == moments[name].masked_fill(touched, 0)).all()


@pytest.mark.parametrize("kind", [SAC, TD3, DQN], ids=str)
def test_shrink_perturb_and_reset(kind: Any) -> None:
    model = agent(kind)
    model.learn(90)
    for callback, keep in ((ShrinkPerturbCallback(every=10, keep=0.8), 0.8), (ResetCallback(every=10), 0.0)):
        policy = copy.deepcopy(model.policy.state_dict())
        callback.init_callback(model)
        callback._on_training_start()
        callback._on_step()
        assert all((now == policy[name]).all() for name, now in model.policy.state_dict().items())  # not due
        callback.last = model._n_updates - 10
        callback._on_step()
        for _, network, target, optimizer in callback._networks():
            for name, p in network.named_parameters():
                assert (optimizer.state[p]["exp_avg"] == 0).all()
                assert optimizer.state[p]["step"] == 0  # the next steps are a new Adam's
                if target is None:
                    continue
                old_p, old_t = (_find(policy, model, module, name) for module in (network, target))
                new = (p - keep * old_p) / (1 - keep)  # the draw
                torch.testing.assert_close(target.get_parameter(name), keep * old_t + (1 - keep) * new)
                if "weight" in name:
                    assert (new - old_p).abs().mean() > 0.05
    seen = [model.policy.state_dict()[key].clone() for key in policy]
    callback.last -= 10
    callback._on_step()
    assert any((a != model.policy.state_dict()[key]).any() for a, key in zip(seen, policy, strict=True))


def _find(policy: Any, model: Any, module: Any, name: str) -> Any:
    (prefix,) = [key for key, child in model.policy.named_children() if child is module]
    return policy[f"{prefix}.{name}"]


@pytest.mark.slow
def test_remedies_run_in_training() -> None:
    model = agent(SAC)
    callbacks = [ReDoCallback(every=20), ShrinkPerturbCallback(every=30), ResetCallback(every=50)]
    model.learn(200, callback=callbacks)
    assert all(callback.last >= 100 for callback in callbacks)
    assert np.isfinite(model.predict(np.ones(3))[0]).all()


def test_what_is_refused() -> None:
    for message, attempt in {
        "probe_freq and samples must be >= 1, got 0": lambda: PlasticityCallback(0),
        "ResetCallback: every counts updates and must be >= 1": lambda: ResetCallback(0),
        "keep must be in 0..1, got 1.5": lambda: ShrinkPerturbCallback(keep=1.5),
        "tau must be >= 0": lambda: ReDoCallback(tau=-1),
        "SAC of SBX has Flax's": lambda: agent(sbx.SAC).learn(10, callback=ResetCallback()),
        "no measures for TQC": lambda: agent(sbx.TQC).learn(100, callback=PlasticityCallback(30)),
        "no measures for A2C": lambda: passes(A2C("MlpPolicy", "Pendulum-v1", device="cpu"), None, 0),
    }.items():
        with pytest.raises((TypeError, ValueError), match=message):
            attempt()


def test_sb3_brings_no_jax() -> None:
    code = (
        "import sys; import neoteny.integrations.sb3; "
        "print([name for name in sys.modules if name.split('.')[0] in ('jax', 'jaxlib', 'flax')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("kind", [TD3, *(pytest.param(one, marks=pytest.mark.slow) for one in (SAC, DQN))], ids=str)
def test_the_fresh_twin_gap(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new agent has a gap near 1, one whose units are silenced a large one; the run is the same as without it."""
    monkeypatch.setattr("neoteny.integrations.sb3.fresh_twin.gap_of.__defaults__", (300,))
    ends, kept = [], Kept()
    for twin_freq in (0, 70):
        model = agent(kind, learning_starts=100, learning_rate=3e-3)
        model.set_logger(Logger(None, [kept]))
        model.learn(300, callback=PlasticityCallback(probe_freq=1_000, twin_freq=twin_freq), log_interval=1)
        model.logger.dump()
        obs = np.ones((1, *model.observation_space.shape), np.float32)
        ends.append([value.detach().numpy() for value in model.policy.parameters()])
        assert model.predict(obs)[0] is not None
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)
    named = {name for line in kept.lines for name in line if "fresh_twin" in name}
    assert named == {f"plasticity/critic/fresh_twin_{name}" for name in ("gap", "loss", "new_loss")}
    critic = model.q_net if kind is DQN else model.critic
    callback = PlasticityCallback()
    callback.init_callback(model)
    before = callback.measure_twin()["critic/fresh_twin_gap"]
    assert 0.0 < before < 3.0
    with torch.no_grad():
        for layer, _ in hidden_of(critic):
            critic.get_submodule(layer).bias -= 1e3
    assert callback.measure_twin()["critic/fresh_twin_gap"] > 2 * before


def test_the_fresh_twin_gap_is_not_for_sbx() -> None:
    with pytest.raises(TypeError, match="twin_freq trains torch networks, and TD3 of SBX has Flax's: leave it out"):
        PlasticityCallback(twin_freq=10).init_callback(agent(sbx.TD3))
    with pytest.raises(ValueError, match="twin_freq must be >= 0, got -1"):
        PlasticityCallback(twin_freq=-1)
