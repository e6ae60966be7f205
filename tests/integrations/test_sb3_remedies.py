"""Injection and ReGraMa in SB3's agents: what they change, what they leave alone, and that training goes on with it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, SAC, TD3

from neoteny.integrations.sb3 import InjectionCallback, PlasticityCallback, ReDoCallback, ReGraMaCallback, ResetCallback
from neoteny.integrations.sb3.passes import hidden_of

AGENTS = [SAC, TD3, DQN]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def agent(kind: Any, steps: int = 90, **options: Any) -> Any:
    """An agent after a few updates."""
    known = {"learning_starts": 60, "buffer_size": 400, "train_freq": 1, "seed": 0}
    env = "CartPole-v1" if kind is DQN else "Pendulum-v1"
    model = kind("MlpPolicy", env, device="cpu", **{**known, "policy_kwargs": {"net_arch": [16, 12]}, **options})
    model.learn(steps)
    return model


def injected(model: Any) -> InjectionCallback:
    callback = InjectionCallback(at=model._n_updates + 1)
    callback.init_callback(model)
    callback._on_training_start()
    callback.act()
    return callback


def outputs(model: Any) -> list[torch.Tensor]:
    """Of every network and target, in a fixed order."""
    torch.manual_seed(0)
    size = model.observation_space.shape[0]
    obs = torch.randn(8, size)
    with torch.no_grad():
        if isinstance(model, DQN):
            return [net(obs) for net in (model.q_net, model.q_net_target)]
        action = torch.rand(8, 1)
        values = [value for critic in (model.critic, model.critic_target) for value in critic(obs, action)]
        if isinstance(model, SAC):
            return [*values, *model.actor.get_action_dist_params(obs)[:2]]
        return [*values, model.actor(obs), model.actor_target(obs)]


@pytest.mark.parametrize("kind", AGENTS, ids=str)
def test_an_injection_changes_no_output_and_then_trains_the_new_tail_alone(kind: Any) -> None:
    model = agent(kind)
    before, policy = outputs(model), copy.deepcopy(model.policy.state_dict())
    callback = injected(model)
    for was, now in zip(before, outputs(model), strict=True):
        torch.testing.assert_close(was, now, rtol=1e-5, atol=1e-5)
    own = [(network, target, optimizer) for _, network, target, optimizer in callback._networks()]
    frozen = []
    for network, target, optimizer in own:
        known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        assert known == {id(p) for p in network.parameters() if p.requires_grad}
        tail = {name: p for name, p in network.named_parameters() if ".trained." in f".{name}."}
        assert len(tail) >= 4
        for name, p in network.named_parameters():
            if name in tail:
                assert all((part == 0).all() for part in optimizer.state[p].values())  # moments and count
                taken = name.replace("trained", "frozen.1")
                assert (network.get_parameter(taken) == p).all()  # h1 = h2
                assert (network.get_parameter(name.replace("trained", "frozen.0")) != p).any()
                if target is not None:
                    assert (target.get_parameter(name) == p).all()  # the same draw
            elif p.requires_grad:
                assert any((part != 0).any() for part in optimizer.state[p].values())
        frozen.append({name: p.clone() for name, p in network.named_parameters() if not p.requires_grad})
    kept = [value for name, value in policy.items() if name.startswith(("q_net_target.q_net.2", "critic_target.qf0.2"))]
    target_tail = own[0][1].get_parameter("q_net.2.frozen.0.0.weight" if kind is DQN else "qf0.2.frozen.0.0.weight")
    assert (target_tail == kept[0]).all()  # a target keeps its own old tail
    tails = [[p.clone() for p in network.parameters() if p.requires_grad] for network, _, _ in own]
    model.learn(30, reset_num_timesteps=False)
    for (network, _, _), constants, was in zip(own, frozen, tails, strict=True):
        assert all((network.get_parameter(name) == value).all() for name, value in constants.items())
        now = [p for p in network.parameters() if p.requires_grad]
        assert all((a != b).any() for a, b in zip(was, now, strict=True))


def test_after_training_the_output_is_h_plus_h1_minus_h2_by_hand() -> None:
    model = agent(SAC)
    injected(model)
    model.learn(30, reset_num_timesteps=False)
    weights = {name: value.double().numpy() for name, value in model.actor.state_dict().items()}
    obs = np.random.default_rng(0).normal(size=(5, 3))

    def layer(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    features = np.maximum(layer(obs, "latent_pi.0"), 0)
    parts = []
    for part in ("trained", "frozen.0", "frozen.1"):
        hidden = np.maximum(layer(features, f"latent_pi.2.{part}.0"), 0)
        parts.append((layer(hidden, f"mu.{part}"), layer(hidden, f"log_std.{part}")))
    with torch.no_grad():
        mean, log_std, _ = model.actor.get_action_dist_params(torch.as_tensor(obs, dtype=torch.float32))
    np.testing.assert_allclose(mean, parts[1][0] + parts[0][0] - parts[2][0], atol=1e-5)
    np.testing.assert_allclose(log_std, parts[1][1] + parts[0][1] - parts[2][1], atol=1e-5)
    assert abs(parts[0][0] - parts[2][0]).max() > 1e-3


@pytest.mark.parametrize("kind", AGENTS, ids=str)
def test_after_an_injection_the_trained_tail_is_measured_and_what_is_frozen_stays(kind: Any) -> None:
    model = agent(kind)
    before = [len(hidden_of(network)) for _, network, _, _ in injected(model)._networks()]
    callbacks: list[Any] = [PlasticityCallback(10, 32), ReDoCallback(10, 0.5, 32), ResetCallback(15)]
    frozen = {name: p.clone() for name, p in model.policy.named_parameters() if ".frozen." in f".{name}"}
    model.learn(30, callback=callbacks, reset_num_timesteps=False)
    for name, value in frozen.items():
        if "target" not in name:
            assert (model.policy.get_parameter(name) == value).all(), name
    for label, network, _, _ in callbacks[1]._networks():
        hidden = hidden_of(network)
        assert len(hidden) == before.pop(0) == (2 if network is not getattr(model, "critic", None) else 4)
        assert all("frozen" not in name for unit in hidden for name in (unit.layer, *unit.readers))
        assert sum("trained" in unit.layer for unit in hidden) == len(hidden) // 2
        assert {unit.layer for unit in hidden} == set(callbacks[1].passes[label].activations)


def test_what_was_saved_after_an_injection_can_be_loaded(tmp_path: Path) -> None:
    model = agent(TD3)
    injected(model)
    model.learn(30, reset_num_timesteps=False)
    model.save(tmp_path / "saved")
    other = agent(TD3, 0, seed=5)
    callback = InjectionCallback(at=1)
    callback.init_callback(other)
    callback.act()
    other.set_parameters(str(tmp_path / "saved.zip"))
    for mine, theirs in zip(outputs(model), outputs(other), strict=True):
        assert (mine == theirs).all()


def test_an_injection_is_done_once_at_its_moment() -> None:
    model = agent(DQN)
    callback = InjectionCallback(at=50)
    model.learn(60, callback=callback, reset_num_timesteps=False)
    names = [name for name, _ in model.q_net.named_parameters()]
    assert any("frozen" in name for name in names)
    model.learn(30, callback=callback, reset_num_timesteps=False)
    assert [name for name, _ in model.q_net.named_parameters()] == names
    with pytest.raises(ValueError, match="plasticity was injected already"):
        callback.act()


@pytest.mark.parametrize("kind", AGENTS, ids=str)
def test_units_without_gradient_are_recycled_by_regrama_and_others_are_not(kind: Any) -> None:
    """Units that nobody reads have none, whatever their activity: ReDo would leave them."""
    model = agent(kind)
    _, network, target, optimizer = callback_networks(model)[0]
    unread = hidden_of(network)[0]
    reader = network.get_submodule(unread.readers[0])
    with torch.no_grad():
        reader.weight[:, [2, 5]] = 0
        network.get_submodule(unread.layer).bias[[2, 5]] = 3.0  # far from dormant
    before = copy.deepcopy(network.state_dict())
    told = outputs(model)[0]
    callback = ReGraMaCallback(every=1, tau=0.0, samples=200)
    callback.init_callback(model)
    callback._on_training_start()
    callback.act()
    deltas = callback.passes["critic"].deltas[unread.layer]
    dead = (deltas == 0).all(axis=0)
    assert dead[[2, 5]].all()
    assert not dead.all()
    now = network.state_dict()[f"{unread.layer}.weight"]
    changed = (now != before[f"{unread.layer}.weight"]).any(dim=1).numpy()
    assert (changed == dead).all()
    assert (target.get_submodule(unread.layer).weight[dead] == now[dead]).all()
    state = optimizer.state[network.get_submodule(unread.layer).weight]
    assert (state["exp_avg"][dead] == 0).all()
    assert state["step"] > 0  # the count goes on
    torch.testing.assert_close(outputs(model)[0], told)


def callback_networks(model: Any) -> Any:
    callback = ResetCallback()
    callback.init_callback(model)
    return callback._networks()


def test_what_is_refused() -> None:
    for message, attempt in {
        "every counts updates and must be >= 1, got 0": lambda: InjectionCallback(0),
        r"ReGraMaCallback: tau must be >= 0": lambda: ReGraMaCallback(tau=-1),
        r"at=5 updates have passed, this agent has made": lambda: agent(TD3).learn(9, InjectionCallback(5)),
        "with use_sde=True": lambda: agent(SAC, 0, use_sde=True).learn(9, InjectionCallback(5)),
        "from the last hidden layer on, and this QNetwork has none": lambda: agent(
            DQN, 0, policy_kwargs={"net_arch": []}
        ).learn(9, InjectionCallback(5)),
    }.items():
        with pytest.raises((TypeError, ValueError), match=message):
            attempt()
