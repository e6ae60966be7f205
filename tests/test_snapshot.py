"""Snapshots: a restored environment goes on bit for bit as the saved one, in any process, or is refused by name."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from neoteny import envs, snapshot

MUJOCO = (
    "Ant HalfCheetah Hopper Humanoid HumanoidStandup InvertedDoublePendulum InvertedPendulum Pusher Reacher Swimmer "
    "Walker2d"
).split()
CLASSIC = "CartPole-v1 Acrobot-v1 MountainCar-v0 MountainCarContinuous-v0 Pendulum-v1".split()
# Between them: tasks that write into the model, terrain, meshes, contacts, a model that is drawn at random, RK4.
DMC = (
    "cheetah-run dog-run fish-swim humanoid-run lqr-lqr_6_2 manipulator-bring_ball point_mass-hard quadruped-escape "
    "reacher-hard"
).split()
DMC_SLOW = (
    "acrobot-swingup acrobot-swingup_sparse ball_in_cup-catch cartpole-balance cartpole-balance_sparse "
    "cartpole-swingup cartpole-swingup_sparse cartpole-two_poles cartpole-three_poles dog-stand dog-walk dog-trot "
    "dog-fetch finger-spin finger-turn_easy finger-turn_hard fish-upright hopper-stand hopper-hop humanoid-stand "
    "humanoid-walk humanoid-run_pure_state humanoid_CMU-stand humanoid_CMU-walk humanoid_CMU-run lqr-lqr_2_1 "
    "manipulator-bring_peg manipulator-insert_ball manipulator-insert_peg pendulum-swingup point_mass-easy "
    "quadruped-walk quadruped-run quadruped-fetch reacher-easy stacker-stack_2 stacker-stack_4 swimmer-swimmer6 "
    "swimmer-swimmer15 walker-stand walker-walk walker-run"
).split()
Make = Callable[[], gym.Env]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo leaves a log of its warnings where it runs."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quadruped's escape asks for a screen to show its terrain on, at each reset."""
    envs._import_dm_control(render=False)
    from dm_control.mujoco import engine

    monkeypatch.setattr(engine.Physics, "contexts", None)


def make(env_id: str = "", options: envs.EnvOptions = envs.PLAIN, make_env: Make | None = None) -> gym.Env:
    """One environment as a run has it, with episodes short enough to see them end."""
    env = envs.make(env_id, 1, options, make_env).envs[0]
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, gym.wrappers.TimeLimit):
            layer._max_episode_steps = 27
        layer = layer.env
    if type(layer).__module__.startswith("shimmy."):
        layer._env._step_limit = 54
    return env


def make_dmc(task: str) -> gym.Env:
    def flat() -> gym.Env:  # some tasks observe matrices
        return gym.wrappers.FlattenObservation(gym.make(f"dm_control/{task}-v0"))

    envs._import_dm_control(render=False)
    if task.startswith(("manipulator", "stacker")):
        return make(options=envs.EnvOptions(action_repeat=2), make_env=flat)
    return make(f"dm_control/{task}-v0")


def make_by_name(name: str) -> gym.Env:
    return make(name) if "-v" in name else make_dmc(name)


def action(env: gym.Env, rng: np.random.Generator) -> Any:
    space = env.action_space
    if isinstance(space, spaces.Discrete):
        return int(rng.integers(space.n))
    assert isinstance(space, spaces.Box)
    return rng.uniform(space.low, space.high).astype(space.dtype)


def walk(env: gym.Env, steps: int, rng: np.random.Generator) -> None:
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(action(env, rng))
        if terminated or truncated:
            env.reset()


def check_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple | deque):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            check_same(a, b)
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    else:
        assert one == other


def check_future(one: gym.Env, other: gym.Env, steps: int) -> None:
    """Both take the same actions and are reset when an episode ends, and now and then before."""
    rng = np.random.default_rng(99)
    for step in range(steps):
        chosen = action(one, rng)
        a, b = one.step(chosen), other.step(chosen)
        check_same(a[:4], b[:4])
        assert ("episode" in a[4]) == ("episode" in b[4])
        if "episode" in a[4]:
            check_same([a[4]["episode"][key] for key in "rl"], [b[4]["episode"][key] for key in "rl"])
        if a[2] or a[3] or step % 40 == 39:
            check_same(one.reset()[0], other.reset()[0])


def packed(state: dict[str, Any]) -> tuple[str, bytes]:
    """JSON and an .npz; anything that is not allowed in a state fails."""
    arrays: list[np.ndarray] = []

    def replace(value: Any) -> Any:
        if type(value) is dict:
            assert all(type(key) is str for key in value)
            return {key: replace(item) for key, item in value.items()}
        if type(value) is list:
            return [replace(item) for item in value]
        if type(value) is np.ndarray:
            assert value.dtype.kind in "biufc"
            arrays.append(value)
            return {"array": len(arrays) - 1}
        assert value is None or type(value) in (str, int, float, bool), value
        return value

    text = json.dumps(replace(state))
    file = io.BytesIO()
    np.savez(file, *arrays, allow_pickle=False)
    return text, file.getvalue()


def unpacked(text: str, data: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return json.loads(text, object_hook=lambda d: arrays[f"arr_{d['array']}"] if d.keys() == {"array"} else d)


def moved(one: gym.Env, other: gym.Env) -> None:
    snapshot.restore(other, unpacked(*packed(snapshot.save(one))))


def check(make_env: Make, before: tuple[int, ...] = (0, 13, 50), after: int = 60) -> None:
    one, other = make_env(), make_env()
    rng = np.random.default_rng(5)
    for seed, steps in enumerate(before):
        one.reset(seed=seed)
        walk(one, steps, rng)
        other.reset(seed=100 + seed)
        walk(other, 3, rng)
        moved(one, other)
        check_future(one, other, after)


@pytest.mark.parametrize("name", MUJOCO)
def test_mujoco(name: str) -> None:
    check(lambda: make(f"{name}-v5"))


@pytest.mark.parametrize("name", CLASSIC)
def test_classic_control(name: str) -> None:
    check(lambda: make(name))


@pytest.mark.parametrize("name", "CartPole CartPoleForce Acrobot AcrobotMass Pendulum PendulumGravity".split())
def test_drifting_control(name: str) -> None:
    check(lambda: make(make_env=lambda: gym.make(f"neoteny/Drifting{name}-v0", every=11)))


@pytest.mark.parametrize("name", "Asterix-v0 Breakout-v1 Freeway-v1 Seaquest-v1 SpaceInvaders-v1".split())
def test_minatar(name: str) -> None:
    check(lambda: make(f"MinAtar/{name}"), (0, 13, 50, 333), 150)


def test_minatar_in_turn() -> None:
    """Saved in one game, restored into another, with games after it that had been played before."""
    check(lambda: make(make_env=lambda: gym.make("neoteny/MinAtarInTurn-v0", every=17)), (0, 13, 20, 45, 200), 150)


@pytest.mark.parametrize("name", "FrozenLake-v1 Blackjack-v1 CliffWalking-v1 Taxi-v4".split())
def test_toy_text(name: str) -> None:
    check(lambda: gym.make(name))


@pytest.mark.usefixtures("no_screen")
@pytest.mark.parametrize("task", [*DMC, *(pytest.param(task, marks=pytest.mark.slow) for task in DMC_SLOW)])
def test_deepmind_control(task: str) -> None:
    check(lambda: make_dmc(task), (0, 50))


def test_every_task_of_the_suite_is_in_the_list() -> None:
    envs._import_dm_control(render=False)
    from dm_control import suite

    assert sorted(f"{domain}-{task}" for domain, task in suite.ALL_TASKS) == sorted([*DMC, *DMC_SLOW])


def test_deepmind_control_keeps_one_random_state() -> None:
    """The seed of reset() makes a new RandomState for the task, which is what np_random gives: one object, restored."""
    one, other = make_dmc("reacher-easy"), make_dmc("reacher-easy")
    one.reset(seed=1)
    other.reset(seed=2)
    inner: Any = other.unwrapped
    random = inner._env.task.random
    moved(one, other)
    assert inner.np_random is inner._env.task.random is random
    assert random.uniform() == one.unwrapped.np_random.uniform()


@pytest.mark.parametrize("game", ["ALE/Breakout-v5", "ALE/Phoenix-v5"])
@pytest.mark.parametrize("kind", ["training", "evaluation", "sticky"])
def test_atari(game: str, kind: str) -> None:
    options = envs.EnvOptions(evaluation=kind == "evaluation", sticky=kind == "sticky")
    check(lambda: make(game, options), (33, 190), 120)


@pytest.mark.parametrize("setting", [{"repeat_action_probability": 0.25}, {"sound_obs": True}])
def test_atari_that_the_emulator_does_not_tell_all_of(setting: dict[str, Any]) -> None:
    import ale_py

    gym.register_envs(ale_py)
    env = gym.make("ALE/Pong-v5", **{"repeat_action_probability": 0.0, **setting})
    env.reset(seed=0)
    with pytest.raises(snapshot.Unsavable, match=rf"AtariEnv\.ale cannot be saved.*{next(iter(setting))}="):
        snapshot.save(env)


def test_action_repeat() -> None:
    check(lambda: make("HalfCheetah-v5", envs.EnvOptions(action_repeat=3)))


@pytest.mark.parametrize(
    "wrap",
    [
        gym.wrappers.NormalizeObservation,
        gym.wrappers.NormalizeReward,
        gym.wrappers.TimeAwareObservation,
        lambda env: gym.wrappers.FrameStackObservation(env, 3),
        lambda env: gym.wrappers.DelayObservation(env, 2),
        lambda env: gym.wrappers.StickyAction(env, 0.5),
    ],
)
def test_wrappers_of_gymnasium(wrap: Callable[[gym.Env], gym.Env]) -> None:
    check(lambda: make(make_env=lambda: wrap(gym.make("Hopper-v5"))))


@pytest.mark.usefixtures("no_screen")
@pytest.mark.parametrize("name", ["Humanoid-v5", "quadruped-escape", "CartPole-v1", "ALE/Breakout-v5"])
def test_saving_disturbs_nothing(name: str) -> None:
    one, twin = make_by_name(name), make_by_name(name)
    for env in (one, twin):
        env.reset(seed=4)
        walk(env, 20, np.random.default_rng(1))
    first, second = packed(snapshot.save(one)), packed(snapshot.save(one))
    assert first == second
    check_future(one, twin, 60)
    assert packed(snapshot.save(one)) == packed(snapshot.save(twin))


@pytest.mark.parametrize("name", ["Hopper-v5", "ALE/Breakout-v5"])  # Atari writes into the arrays it has
def test_a_state_is_not_tied_to_the_environment_it_came_from(name: str) -> None:
    """Nor used up: it can be restored twice, and into the environment that it was taken of."""
    one, other = make(name), make(name)
    one.reset(seed=0)
    other.reset(seed=1)
    walk(one, 10, np.random.default_rng(0))
    state = snapshot.save(one)
    before = packed(state)
    for _ in range(2):
        snapshot.restore(other, state)
        walk(one, 10, np.random.default_rng(0))
        snapshot.restore(one, state)
        check_future(one, other, 40)
    assert packed(state) == before


@pytest.mark.parametrize("name", ["Ant-v5", "Humanoid-v5"])
def test_the_state_that_mujoco_integrates_is_not_enough(name: str) -> None:
    """Their observations read forces and inertias of the last sub-step, which mj_forward does not bring back."""
    import mujoco

    one: Any = gym.make(name).unwrapped
    other: Any = gym.make(name).unwrapped
    one.reset(seed=0)
    other.reset(seed=0)
    rng = np.random.default_rng(0)
    walk(one, 10, rng)
    while not one.data.cfrc_ext.any():  # until something touches the ground
        walk(one, 1, rng)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(one.model, kind))
    mujoco.mj_getState(one.model, one.data, state, kind)
    mujoco.mj_setState(other.model, other.data, state, kind)
    mujoco.mj_forward(other.model, other.data)
    assert not np.array_equal(one._get_obs(), other._get_obs())
    snapshot.restore(other, snapshot.save(one))
    check_same(one._get_obs(), other._get_obs())


def test_what_a_user_changed_in_the_model() -> None:
    def changed() -> gym.Env:
        env: Any = make("Walker2d-v5")
        if not earlier:  # the environment that is saved, and not the one that is restored
            env.unwrapped.model.opt.gravity[2] = -5
            env.unwrapped.model.opt.integrator = 0
            env.unwrapped.model.opt.iterations = 3
            env.unwrapped.model.stat.meaninertia *= 2
            env.unwrapped.model.body_mass[1] *= 2
        earlier.append(env)
        return env

    earlier: list[gym.Env] = []
    check(changed)


SAVE = """
import sys, numpy as np, test_snapshot as tests
from neoteny import snapshot
env = tests.make_by_name(sys.argv[1])
env.reset(seed=3)
for path in sys.argv[2:]:
    tests.walk(env, 40, np.random.default_rng(0))
    text, data = tests.packed(snapshot.save(env))
    open(path + ".json", "w").write(text)
    open(path + ".npz", "wb").write(data)
"""


@pytest.mark.parametrize("name", ["Humanoid-v5", "lqr-lqr_2_1"])
def test_another_process(name: str, tmp_path: Path) -> None:
    """LQR's springs are drawn when it is made, with no seed: the environment here is another one until restored."""
    paths = [str(tmp_path / when) for when in ("before", "after")]
    where = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run([sys.executable, "-c", SAVE, name, *paths], check=True, env=os.environ | {"PYTHONPATH": where})
    before, after = (unpacked(Path(p + ".json").read_text(), Path(p + ".npz").read_bytes()) for p in paths)
    env = make_by_name(name)
    env.reset(seed=7)
    snapshot.restore(env, before)
    check_same(unpacked(*packed(snapshot.save(env))), before)
    walk(env, 40, np.random.default_rng(0))
    check_same(unpacked(*packed(snapshot.save(env))), after)


class Counter(gym.Env):
    """A user's environment that nobody knows how to save."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.count = 0

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.count += 1 + int(action)
        noise = self.np_random.normal()
        return np.array([self.count, noise]), noise, self.count % 17 > 13, False, {}

    def reset(self, **arguments: Any) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(**arguments)
        return np.array([self.count, 0.0]), {}


class SavableCounter(Counter):
    def get_state(self) -> Any:
        return {"count": self.count, "odd": [np.arange(2), (1, None), np.float32(0.1)]}

    def set_state(self, state: Any) -> None:
        check_same(state["odd"], self.get_state()["odd"])
        self.count = state["count"]


class ObjectCounter(SavableCounter):
    def get_state(self) -> Any:
        return {"count": [object()]}


class Scale(gym.RewardWrapper):
    factor = 1.0

    def reward(self, reward: Any) -> float:
        self.factor *= 0.9
        return self.factor * float(reward)


class SavableScale(Scale):
    def get_state(self) -> Any:
        return self.factor

    def set_state(self, state: Any) -> None:
        self.factor = state


def test_a_users_own_environment_and_wrapper() -> None:
    check(lambda: make(make_env=lambda: gym.wrappers.TimeLimit(SavableScale(SavableCounter()), 9)))


@pytest.mark.parametrize(
    ("make_env", "sentence"),
    [
        (Counter, r"test_snapshot\.Counter cannot be saved: give it get_state\(\) and set_state"),
        (lambda: Scale(gym.make("CartPole-v1")), r"test_snapshot\.Scale cannot be saved: give it get_state"),
        (lambda: Scale(SavableCounter()), r"test_snapshot\.Scale cannot be saved"),
        (lambda: SavableScale(Counter()), r"test_snapshot\.Counter cannot be saved"),
        (ObjectCounter, r"ObjectCounter\.get_state\(\)\['count'\]\[0\] cannot be saved, it is a builtins\.object"),
    ],
)
def test_what_cannot_be_saved_is_named(make_env: Make, sentence: str) -> None:
    env = make(make_env=make_env)
    env.reset(seed=0)
    with pytest.raises(snapshot.Unsavable, match=sentence):
        snapshot.save(env)


def test_what_is_unknown_in_a_known_environment_is_named() -> None:
    env: Any = gym.make("CartPole-v1")
    env.reset(seed=0)
    env.unwrapped.world = object()
    with pytest.raises(snapshot.Unsavable, match=r"CartPoleEnv\.world cannot be saved, it is a builtins\.object"):
        snapshot.save(env)


DELAYED = """<mujoco><worldbody><body><joint name="hinge"/><geom size="1"/></body></worldbody>
<actuator><motor joint="hinge" delay="0.01" nsample="5"/></actuator></mujoco>"""


def test_a_model_with_delays_is_not_saved() -> None:
    """What it remembers has indices among floating-point numbers, which a stranger's state must not set."""
    import mujoco

    env: Any = gym.make("CartPole-v1")
    env.reset(seed=0)
    env.unwrapped.data = mujoco.MjData(mujoco.MjModel.from_xml_string(DELAYED))
    with pytest.raises(snapshot.Unsavable, match="data cannot be saved: its model delays actuators or sensors"):
        snapshot.save(env)


def test_a_users_subclass_of_a_known_environment_is_not_known() -> None:
    """It has MujocoEnv's set_state(qpos, qvel), which a get_state() alone does not make ours."""
    from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

    class Mine(HopperEnv):
        def get_state(self) -> int:
            return 0

    env = Mine()
    env.reset(seed=0)
    with pytest.raises(snapshot.Unsavable, match=r"Mine cannot be saved: give it get_state"):
        snapshot.save(env)


def test_a_task_of_a_user_is_not_known() -> None:
    envs._import_dm_control(render=False)
    from dm_control.suite import pendulum
    from shimmy import DmControlCompatibilityV0

    class Mine(pendulum.SwingUp):
        pass

    plain: Any = pendulum.swingup()
    plain._task = Mine()
    env = DmControlCompatibilityV0(plain)
    env.reset(seed=0)
    with pytest.raises(snapshot.Unsavable, match=r"_env\._task cannot be saved, it is a .*Mine"):
        snapshot.save(env)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Hopper-v5", "Walker2d-v5"), ("ALE/Breakout-v5", "ALE/Phoenix-v5"), ("reacher-easy", "reacher-hard")],
)
def test_the_state_of_another_environment(one: str, other: str) -> None:
    a, b = make_by_name(one), make_by_name(other)
    a.reset(seed=0)
    b.reset(seed=0)
    with pytest.raises(ValueError, match=f"the state of .*{one}.* cannot be restored into .*{other}"):
        snapshot.restore(b, snapshot.save(a))


def test_the_state_of_another_chain_or_model() -> None:
    plain = gym.make("Hopper-v5")
    plain.reset(seed=0)
    state = snapshot.save(plain)
    wrapped = gym.wrappers.NormalizeReward(gym.make("Hopper-v5"))
    wrapped.reset(seed=0)
    with pytest.raises(ValueError, match=r"Hopper-v5 \(TimeLimit over .* into Hopper-v5 \(NormalizeReward over"):
        snapshot.restore(wrapped, state)
    heavier = gym.make("Hopper-v5", xml_file="walker2d_v5.xml")
    heavier.reset(seed=0)
    with pytest.raises(ValueError, match="another MuJoCo model"):
        snapshot.restore(heavier, state)


def test_what_is_not_json_keeps_its_type() -> None:
    """Attributes of a known wrapper may be of any of these."""
    bits = np.random.Generator(np.random.MT19937(3))
    values = {
        "tuple": (1, (2.5, "x"), []),
        "deque": deque([np.float32(1.5), np.zeros((2, 0), np.int8)], maxlen=5),
        "unbounded": deque([True]),
        "keys": {1: "a", (2, 3): None, "kind": "tuple", "array": 0},
        "numbers": [2**200, -0.0, np.int64(3), np.bool_(True), np.float64(0.1), np.complex64(1j), np.array(7)],
        "bytes": b"\x00\xff",
        "text": np.str_("t"),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "bits": bits,
        "legacy": np.random.RandomState(4),
    }
    one: Any = gym.make("CartPole-v1")
    other: Any = gym.make("CartPole-v1")
    for env in (one, other):
        env.reset(seed=0)
    vars(one.unwrapped).update(values)
    moved(one, other)
    back = vars(other.unwrapped)
    for name in list(values)[:-2]:
        check_same(values[name], back[name])
    assert back["deque"].maxlen == 5
    assert back["unbounded"].maxlen is None
    assert back["fortran"].flags.f_contiguous
    assert str(back["numbers"][1]) == "-0.0"
    check_same(bits.random(5), back["bits"].random(5))
    check_same(values["legacy"].normal(size=5), back["legacy"].normal(size=5))
    check_same(one.unwrapped.state, other.unwrapped.state)
    assert one.unwrapped.state is not other.unwrapped.state
