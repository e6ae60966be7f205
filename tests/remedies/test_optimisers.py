"""UPGD, Adam-Rel and the reset of the optimiser beside slow twins in NumPy, and when the last two act."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import neoteny
from neoteny.agents.agent import TrainableNetwork
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.agents.learner import Learner, Step
from neoteny.agents.operating import operate
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.errors import UsageError
from neoteny.remedies import UPGD, AdamRel, NaP, OptimiserReset, ReDo
from neoteny.remedies.surgery import cleared
from neoteny.remedies.upgd import normal_like, upgd
from neoteny.settings.config import TrainConfig
from small_agents import RUNS, agent_of, batch_of, compilations, ends_the_same, moments, run_with, trained

BOTH = {"adam-rel": AdamRel(), "optimiser-reset": OptimiserReset()}


def tree(seed: int, scale: float = 1.0) -> Any:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(scale * rng.normal(size=shape), jnp.float32)  # noqa: E731
    return {"one": {"kernel": draw(3, 4), "bias": draw(4)}, "head": {"kernel": draw(4, 1), "bias": draw(1)}}


def plain(tree: Any) -> dict[str, Any]:
    """The leaves as float64, by name."""
    return {jax.tree_util.keystr(path): np.array(leaf, np.float64) for path, leaf in jax.tree.leaves_with_path(tree)}


class SlowUPGD:
    """UPGD's equations, one weight at a time in float64, with the utility's bias correction written out."""

    def __init__(self, params: dict[str, Any], lr: float) -> None:
        self.lr, self.t = lr, 0
        self.w = {(name, index): value for name, leaf in params.items() for index, value in np.ndenumerate(leaf)}
        self.m, self.v, self.u = (dict.fromkeys(self.w, 0.0) for _ in range(3))

    def step(self, grads: dict[str, Any], noise: dict[str, Any]) -> None:
        self.t += 1
        for name, index in self.w:
            g, at = grads[name][index], (name, index)
            self.m[at] = 0.9 * self.m[at] + 0.1 * g
            self.v[at] = 0.999 * self.v[at] + 0.001 * g * g
            self.u[at] = 0.999 * self.u[at] + 0.001 * (-g * self.w[at])
        corrected = {at: u / (1 - 0.999**self.t) for at, u in self.u.items()}
        largest = max(corrected.values())
        for name, index in self.w:
            at = name, index
            s = 1 / (1 + np.exp(-corrected[at] / largest))
            m, v = self.m[at] / (1 - 0.9**self.t), self.v[at] / (1 - 0.999**self.t)
            adam = m / (np.sqrt(v) + 1e-5) + 1e-3 * noise[name][index]
            self.w[at] = (1 - self.lr * 1e-3) * self.w[at] - 2 * self.lr * (1 - s) * adam


def test_three_steps_of_upgd_are_the_twins() -> None:
    lr = 0.05  # so that three steps, the decay and the noise are far above 1e-6
    optimiser, params = upgd(lr), tree(0)
    state, twin = optimiser.init(params), SlowUPGD(plain(params), lr)
    for index in range(3):
        grads, noise = tree(10 + index, 0.3), normal_like(jax.random.split(state.key)[1], params)
        updates, state = jax.jit(optimiser.update)(grads, state, params)
        params = optax.apply_updates(params, updates)
        twin.step(plain(grads), plain(noise))
        for name, leaf in plain(params).items():
            for at, value in np.ndenumerate(leaf):
                assert value == pytest.approx(twin.w[name, at], abs=1e-6), (index, name, at)


def test_upgds_noise_is_normal_new_at_each_step_and_another_for_another_network() -> None:
    params = {"kernel": jnp.ones((300, 300)), "bias": jnp.zeros(300)}
    optimiser = upgd(1.0, sigma=0.5, weight_decay=0.0)
    zeros = jax.tree.map(jnp.zeros_like, params)
    first, state = optimiser.update(zeros, optimiser.init(params), params)  # without utility, half of 2 lr xi
    second, _ = optimiser.update(zeros, state, params)
    other, _ = optimiser.update(zeros, optimiser.init(jax.tree.map(lambda leaf: leaf + 1, params)), params)
    drawn = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(one)]) / 0.5 for one in (first, second, other)]
    for one in drawn:
        assert abs(one.mean()) < 0.02
        assert one.std() == pytest.approx(1.0, abs=0.02)
        assert (one**4).mean() == pytest.approx(3.0, abs=0.15)
    assert abs(np.corrcoef(drawn) - np.eye(3)).max() < 0.02


@pytest.mark.parametrize("sign", [0.0, 1.0])
def test_upgd_takes_steps_where_no_weight_has_a_positive_utility(sign: float) -> None:
    """With no gradient, or with one that makes every weight useless, 0 / 0 and division by a negative number loom."""
    params, optimiser = tree(0), upgd(0.1, sigma=0.0, weight_decay=0.0)
    grads = jax.tree.map(lambda w: sign * w, params)
    updates, _ = optimiser.update(grads, optimiser.init(params), params)
    for step, w in zip(jax.tree.leaves(updates), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(step, -0.2 * sign * np.sign(w), rtol=1e-3)  # s is 0: a whole step of Adam, twice


def test_surgery_clears_upgds_state_where_weights_were_changed_and_lets_its_key_go_on() -> None:
    params, optimiser = tree(0), upgd(0.1)
    _, state = optimiser.update(tree(1), optimiser.init(params), params)
    changed = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), params)
    changed["one"]["kernel"] = changed["one"]["kernel"].at[:, 2].set(True)
    for restart in (True, False):
        after = cleared(state, params, changed, restart)
        assert int(after.steps) == (0 if restart else 1)
        np.testing.assert_array_equal(after.key, state.key)
        for part in ("mu", "nu", "utility"):
            was, now = getattr(state, part), getattr(after, part)
            expected = np.where(np.arange(4) == 2, 0, was["one"]["kernel"])
            np.testing.assert_array_equal(now["one"]["kernel"], expected)
            np.testing.assert_array_equal(now["head"]["kernel"], was["head"]["kernel"])


class SlowAdam:
    """Adam one step at a time in float64."""

    def __init__(self, params: Any, lr: float) -> None:
        self.w, self.lr, self.t = plain(params), lr, 0
        self.m, self.v = ({name: np.zeros_like(leaf) for name, leaf in self.w.items()} for _ in range(2))

    def step(self, grads: dict[str, Any]) -> None:
        self.t += 1
        for name, g in grads.items():
            self.m[name] = 0.9 * self.m[name] + 0.1 * g
            self.v[name] = 0.999 * self.v[name] + 0.001 * g**2
            m, v = self.m[name] / (1 - 0.9**self.t), self.v[name] / (1 - 0.999**self.t)
            self.w[name] = self.w[name] - self.lr * m / (np.sqrt(v) + 1e-8)

    def restart(self, with_moments: bool) -> None:
        self.t = 0
        if with_moments:
            self.m, self.v = ({name: np.zeros_like(leaf) for name, leaf in self.m.items()} for _ in range(2))


@pytest.mark.parametrize("name", BOTH)
def test_steps_after_a_change_of_the_target_are_the_twins(name: str) -> None:
    """A target that changes every second step: the third and the fifth are those of a restarted Adam."""
    remedy, optimiser = BOTH[name].build(100), optax.adam(1e-2)
    network: Any = replace(agent_of("ddqn").networks["critics"], optimiser=optimiser, target_every=2)
    params = tree(0)
    own: Any = trained("ddqn")[1].critics
    own = replace(own, params={"params": params}, target=None, opt=optimiser.init(params))
    assert remedy.memory is not None
    assert remedy.after_step is not None
    memory, twin = remedy.memory(network, params, jax.random.key(0)), SlowAdam(params, 1e-2)
    for index in range(5):
        grads = tree(20 + index)
        updates, opt = optimiser.update(grads, own.opt)
        own = replace(own, params={"params": optax.apply_updates(own.params["params"], updates)}, opt=opt)
        own, memory = remedy.after_step(own, memory, _step_of(network))
        twin.step(plain(grads))
        if index % 2 == 1:
            twin.restart(name == "optimiser-reset")
        for leaf, value in plain(own.params["params"]).items():
            np.testing.assert_allclose(value, twin.w[leaf], atol=1e-6)
        (adam,) = moments(own.opt)
        assert int(adam.count) == twin.t
        for leaf, value in plain(adam.mu).items():
            np.testing.assert_allclose(value, twin.m[leaf], atol=1e-6)


def _step_of(network: TrainableNetwork) -> Any:
    return Step(network, *[None] * (len(Step._fields) - 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", BOTH)
def test_double_dqns_optimiser_restarts_at_its_copies_and_others_every_1_over_tau_steps(name: str) -> None:
    configs = {
        "ddqn": DDQNConfig((12, 10), target_every=12, utd=0.25),
        "td3": TD3Config((12, 10), tau=0.25),
    }
    periods = {"ddqn": 3, "td3": 4}
    for kind, config in configs.items():
        agent = make_agent(config, _problem(kind), remedies=(BOTH[name].build(100),))
        update, state = jax.jit(agent.update), agent.init(jax.random.key(0))
        for index in range(1, 10):
            state, _ = update(state, {key: value[None] for key, value in batch_of(kind, seed=index).items()})
            (adam,) = moments(state.critics.opt)
            assert int(adam.count) == index % periods[kind], (kind, index)
            zero = not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(adam.nu))
            assert zero == (name == "optimiser-reset" and int(adam.count) == 0)
            if kind == "ddqn":  # the same moment to the update, and so the target equals the network there
                pairs = zip(jax.tree.leaves(state.critics.params), jax.tree.leaves(state.critics.target), strict=True)
                assert all(np.array_equal(a, b) for a, b in pairs) == (int(adam.count) == 0)
        if kind == "td3":  # its actor steps at every second update
            assert int(moments(state.actor.opt)[0].count) == (9 // 2) % 4


def _problem(kind: str) -> Problem:
    bound = None if kind == "ddqn" else np.ones(2, np.float32)
    return Problem((5,), False, 2, None if bound is None else -bound, bound, 100)


@pytest.mark.parametrize("name", BOTH)
def test_after_surgery_they_act_on_the_whole_network_and_where_nothing_was_changed_on_nothing(name: str) -> None:
    remedy = BOTH[name].build(100)
    assert remedy.followed is not None
    _, state = trained("ddqn", remedies=(remedy,))
    own, (before,) = state.critics, moments(state.critics.opt)
    for touched in (True, False):
        changed = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), own.params["params"])
        bias = changed["head"]["out"]["dense"]["bias"]
        changed["head"]["out"]["dense"]["bias"] = bias.at[1].set(touched)
        after, memory = remedy.followed(own, own.memory[name], changed)
        (adam,) = moments(after.opt)
        assert int(adam.count) == (0 if touched else 3)
        forgets = touched and name == "optimiser-reset"
        kept = jax.tree.map(jnp.zeros_like, before.nu) if forgets else before.nu
        jax.tree.map(np.testing.assert_array_equal, adam.nu, kept)
        assert int(memory["steps"]) == 3  # the target's changes go on


def test_recycling_beside_one_of_them_restarts_the_count() -> None:
    """ReDo alone keeps it."""
    remedies = (ReDo(tau=0.5).build(100), AdamRel().build(100))
    agent, state = trained("ddqn", remedies=remedies)
    after = operate(remedies[0], remedies, agent, state, batch_of("ddqn"), jax.random.key(1))
    assert int(moments(after.critics.opt)[0].count) == 0


def test_two_that_decide_how_the_optimiser_steps_are_refused() -> None:
    for one in BOTH.values():
        with pytest.raises(UsageError, match=f"--remedy upgd and --remedy {one.name} both decide how the optimiser"):
            TrainConfig("X", remedies=(UPGD(), one))
    with pytest.raises(UsageError, match=r"--remedy adam-rel and --remedy optimiser-reset both decide .* choose one"):
        TrainConfig("X", remedies=(AdamRel(), OptimiserReset()))


@pytest.mark.slow
@pytest.mark.parametrize("remedy", [UPGD(), AdamRel(), OptimiserReset()], ids=lambda one: one.name)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_compiled_once_and_resumes_to_the_same_bits(name: str, remedy: Any, tmp_path: Path) -> None:
    remedies = (remedy, NaP(every=30)) if name == "sac" else (remedy,)
    run = run_with(tmp_path, *RUNS[name], *remedies, steps=170)
    neoteny.resume(run, steps=240, quiet=True)
    whole = run_with(tmp_path, *RUNS[name], *remedies, name="whole", steps=240)
    assert ends_the_same(run, whole)
    assert compilations(run) == compilations(whole) == 1


def test_a_step_with_an_agents_learner_is_upgds() -> None:
    """At the network's own learning rate, in place of its Adam."""
    remedy = UPGD().build(100)
    agent = agent_of("td3", (remedy,))
    state, network, batch = agent.init(jax.random.key(0)), agent.networks["actor"], batch_of("td3")
    step = jax.jit(lambda state: Learner((remedy,)).step(network, state, batch, jax.random.key(1))[0])
    after = step(state).actor
    own = state.actor.params["params"]

    def loss(params: Any) -> Any:
        outputs = network.forward({"params": params}, state, batch)
        return network.loss(outputs, state, batch, jax.random.key(1))[0].mean()

    grads = jax.grad(loss)(own)
    twin = SlowUPGD(plain(own), 1e-4)
    twin.step(plain(grads), plain(normal_like(jax.random.split(state.actor.opt.key)[1], own)))
    for name, leaf in plain(after.params["params"]).items():
        for at, value in np.ndenumerate(leaf):
            assert value == pytest.approx(twin.w[name, at], abs=1e-6), (name, at)


def test_weight_decay_of_td3_and_double_dqn_is_adamws() -> None:
    """Against the same step without decay: it differs by lr x decay x weight, and at 0 Adam is the same Adam."""
    for kind, config in {"td3": TD3Config((12, 10), critic_lr=1e-2), "ddqn": DDQNConfig((12, 10), lr=1e-2)}.items():
        agents = [make_agent(replace(config, weight_decay=decay), _problem(kind)) for decay in (0.0, 0.1)]
        states = [agent.init(jax.random.key(0)) for agent in agents]
        before = states[0].critics.params["params"]
        batch = {key: value[None] for key, value in batch_of(kind).items()}
        after = [jax.jit(agent.update)(state, batch)[0].critics for agent, state in zip(agents, states, strict=True)]
        kept_and_decayed = (jax.tree.leaves(one.params["params"]) for one in after)
        for w, kept, decayed in zip(jax.tree.leaves(before), *kept_and_decayed, strict=True):
            np.testing.assert_allclose(decayed, kept - 1e-2 * 0.1 * w, atol=1e-6)
        assert jax.tree.structure(states[0].critics.opt) == jax.tree.structure(optax.adam(1e-2).init(before))
        assert TrainConfig("X", replace(config, weight_decay=0.0)).run_id() == TrainConfig("X", config).run_id()
        assert TrainConfig("X", replace(config, weight_decay=0.1)).run_id() != TrainConfig("X", config).run_id()


def test_a_weight_decay_that_upgd_would_not_use_is_refused() -> None:
    for agent in (TD3Config(weight_decay=0.1), DDQNConfig(weight_decay=0.1), SACConfig(weight_decay=0.1)):
        with pytest.raises(UsageError, match=r"--weight-decay 0.1 is of the agent's own .* give --upgd-weight-decay"):
            TrainConfig("X", agent, remedies=(UPGD(),))
    for agent in (TD3Config(), DDQNConfig(), SACConfig()):
        TrainConfig("X", agent, remedies=(UPGD(),))
    with pytest.raises(UsageError, match=r"--lr-end 5e-05 is of the agent's own optimiser, .* give --lr-end None"):
        TrainConfig("X", SACConfig(lr_end=5e-5), remedies=(UPGD(),))
    with pytest.raises(UsageError, match="--weight-decay must be a finite number >= 0, got -1"):
        TD3Config(weight_decay=-1)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"decay": 1.0}, r"--upgd-decay must be in \[0, 1\), got 1.0"),
        ({"sigma": -1.0}, "--upgd-sigma must be a finite number >= 0, got -1.0"),
        ({"weight_decay": float("inf")}, "--upgd-weight-decay must be a finite number >= 0, got inf"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        UPGD(**numbers)


def test_a_network_that_does_not_tell_what_they_need_is_refused() -> None:
    network = replace(agent_of("td3").networks["critics"], learning_rate=None, target_every=None)
    for remedy, message in ((UPGD(), "needs a learning rate"), *((one, "no such moment") for one in BOTH.values())):
        with pytest.raises(UsageError, match=f"--remedy {remedy.name} .*{message}"):
            remedy.check({"critics": network})
