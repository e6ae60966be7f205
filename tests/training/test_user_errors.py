"""What a user brings: environments, networks, devices. What cannot work is refused in one sentence before it starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flax.linen as nn
import gymnasium as gym
import numpy as np
import pytest
from flax import nnx
from gymnasium import spaces

import neoteny
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.cli import main
from neoteny.errors import RunStopped, UsageError
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig

BOX = spaces.Box(-9, 9, (3,), np.float32)
ACTION = spaces.Box(-1, 1, (1,), np.float32)


def tiny(env: str = "Own", **options: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "agent": TD3Config((16,), batch_size=16, learning_starts=30),
        "replay": ReplayConfig(capacity=1_000),
        "plasticity": PlasticityConfig(probe_every=0),
        "total_timesteps": 100,
        "eval_every": 0,
        "checkpoint_every": 0,
    }
    return TrainConfig(env, **{**settings, **options})


class Own(gym.Env):
    """Episodes of 20 steps whose observation is always `obs`."""

    def __init__(self, obs: Any = None, space: spaces.Space = BOX, action: spaces.Space = ACTION) -> None:
        self.obs = np.zeros(3, np.float32) if obs is None else obs
        self.observation_space, self.action_space = space, action

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.obs, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.obs, 1.0, False, self.steps == 20, {}


def refused(tmp_path: Path, config: TrainConfig | None = None, **arguments: Any) -> str:
    """The sentence with which a run is refused, before anything is on disk."""
    with pytest.raises(UsageError) as error:
        neoteny.train(config or tiny(), out=tmp_path / "run", quiet=True, **arguments)
    assert not (tmp_path / "run").exists()
    said = str(error.value)
    assert "\n" not in said
    return said


class Sometimes(Own):
    """In about half of the episodes the tenth reward is NaN."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs_and_info = super().reset(seed=seed)
        self.bad = bool(self.np_random.random() < 0.5)
        return obs_and_info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, float("nan") if self.bad and self.steps == 10 else reward, terminated, truncated, info


class Always(Sometimes):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs_and_info = super().reset(seed=seed)
        self.bad = True
        return obs_and_info


@pytest.fixture
def registered() -> Iterator[None]:
    for kind in (Sometimes, Always):
        gym.register(f"{kind.__name__}-v0", kind, disable_env_checker=True)  # which warns of NaN, and here that fails
    yield
    for kind in (Sometimes, Always):
        gym.registry.pop(f"{kind.__name__}-v0")


@pytest.mark.parametrize("num_envs", [1, 2])
def test_steps_that_are_not_finite_are_said_where_a_person_looks(
    num_envs: int, registered: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = neoteny.train(tiny("Always-v0", num_envs=num_envs), out=tmp_path / "run", quiet=True)
    first, last = [line for line in capsys.readouterr().err.splitlines() if "NaN" in line]
    assert first.startswith(f"At step {10 * num_envs} the environment returned NaN or infinity: such a step is not")
    told = "10 steps were not stored because the environment returned NaN or infinity"
    assert last.startswith(told)
    assert main(["inspect", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "100 of 100 steps, 0 episodes" in shown
    assert told in shown


def test_an_evaluation_names_the_episodes_that_are_not_finite(
    registered: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = neoteny.train(tiny("Sometimes-v0"), out=tmp_path / "sometimes", quiet=True)
    assert main(["evaluate", str(run), "--episodes", "6"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^(\d) episodes?: mean return 20.00.*; left out: episodes? [\d, ]+ of 6, where the env", shown)
    assert "nan" not in shown
    run = neoteny.train(tiny("Always-v0"), out=tmp_path / "always", quiet=True)
    assert main(["evaluate", str(run), "--episodes", "2"]) == 1
    said = capsys.readouterr()
    assert "there is no mean return: the environment returned NaN or infinity in all of 2 episodes" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "options",
    [{"num_envs": 2}, {"eval_every": 50, "eval_episodes": 1}, {"eval_every": 50, "eval_episodes": 2}],
    ids=["two to train in", "one to train and one to evaluate in", "two to evaluate in"],
)
@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: gym.wrappers.TimeLimit(env, 9)], ids=["bare", "wrapped"])
def test_an_environment_that_is_returned_twice_is_refused(options: dict[str, Any], wrap: Any, tmp_path: Path) -> None:
    one = Own()
    said = refused(tmp_path, tiny(**options), make_env=lambda: wrap(one))
    assert "make_env returned the same environment twice" in said
    assert "it must make a new one at every call, such as lambda: gym.make(...)" in said


def test_one_environment_that_is_used_once_is_fine(tmp_path: Path) -> None:
    one = Own()
    neoteny.train(tiny(), out=tmp_path / "run", make_env=lambda: one, quiet=True)


@pytest.mark.parametrize("agent", [TD3Config(), SACConfig(), DDQNConfig()], ids=["td3", "sac", "ddqn"])
@pytest.mark.parametrize(
    ("space", "number"),
    [(spaces.MultiDiscrete([3, 4]), "Discrete(12)"), (spaces.MultiBinary(3), "Discrete(8)")],
    ids=["MultiDiscrete", "MultiBinary"],
)
def test_actions_that_no_agent_takes(agent: Any, space: spaces.Space, number: str, tmp_path: Path) -> None:
    """No agent sends the user to another that does not take them either."""
    said = refused(tmp_path, tiny(agent=agent), make_env=lambda: Own(action=space))
    assert f"Own has the actions {space}, which no agent takes: wrap it" in said
    assert number in said


def returning(value: Any) -> Any:
    class Returning(Own):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return value

    return Returning


@pytest.mark.parametrize(
    ("make_env", "message"),
    [
        (
            lambda: Own(np.zeros(4, np.float32)),
            "reset of Own returned an observation of shape (4,), and its observation_space has (3,)",
        ),
        (
            lambda: Own({"a": np.zeros(2)}, spaces.Dict(a=BOX)),
            "returned an observation of shape {'a': (2,)}, and its observation_space has {'a': (3,)}",
        ),
        (
            lambda: gym.wrappers.TransformObservation(Own(), lambda obs: obs[:2], BOX),
            "reset of TransformObservation returned an observation of shape (2,)",
        ),
        (returning(np.zeros(3)), "reset of Returning must return an observation and a dict, (obs, info)"),
        (lambda: "Own", "make_env must return a Gymnasium environment (gymnasium.Env), got 'Own'"),
    ],
)
def test_environments_that_are_not_what_they_say(make_env: Any, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, make_env=make_env)


def test_an_error_of_the_environments_own_is_shown_as_it_is(tmp_path: Path) -> None:
    class Broken(Own):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            raise RuntimeError("no simulator")

    with pytest.raises(RuntimeError, match="no simulator"):
        neoteny.train(tiny(), out=tmp_path / "run", make_env=Broken, quiet=True)


class Trunk(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.tanh(nn.Dense(7)(x))


class Scalar(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(1)(x)[..., 0]


class Pair(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return x, x


class OnlyObservations(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return x.reshape(-1, 3)[:, None] @ np.ones((3, 5), np.float32)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (Trunk, "network must be a module, got the class Trunk: pass Trunk()"),
        (nnx.Linear(3, 4, rngs=nnx.Rngs(0)), "must be a Flax Linen module (flax.linen.Module), got a flax.nnx"),
        (nn.relu, "must be a Flax Linen module (flax.linen.Module), got a"),
        (Scalar(), "network must return features, (batch, features), to which the agent adds its own last layer"),
        (Pair(), "for a batch of 3 observations it returned tuple"),
        (OnlyObservations(), "network must return features"),
    ],
    ids=["class", "nnx", "function", "scalar", "pair", "three axes"],
)
def test_networks_that_cannot_be_used(network: Any, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, tiny("Pendulum-v1"), network=network)


def test_a_network_that_fails_on_the_critics_inputs(tmp_path: Path) -> None:
    class Three(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return x @ self.param("kernel", nn.initializers.ones, (3, 5))

    said = refused(tmp_path, tiny("Pendulum-v1"), network=Three())
    assert "network fails on a batch of observations and actions, of shape (3, 4): " in said


def test_the_policy_takes_what_the_environment_gives(tmp_path: Path) -> None:
    space = spaces.Dict(velocity=spaces.Box(-9, 9, (2,), np.float32), angle=spaces.Box(-9, 9, (), np.float32))
    obs = {"velocity": np.array([1, 2], np.float32), "angle": np.float32(5)}
    run = neoteny.train(tiny(), out=tmp_path / "run", make_env=lambda: Own(obs, space), quiet=True)
    policy = neoteny.load_policy(run)
    action = policy(spaces.flatten(space, obs))
    np.testing.assert_array_equal(policy(obs), action)
    other = {"angle": np.float32(-3), "velocity": np.array([0, 4], np.float32)}  # in another order
    assert policy(other) != action
    batch = {name: np.stack([obs[name], other[name]]) for name in obs}
    np.testing.assert_allclose(policy(batch), [action, policy(other)], rtol=1e-5)
    one = {name: np.asarray(obs[name])[None] for name in obs}
    np.testing.assert_allclose(policy(one), [action], rtol=1e-5)
    for wrong, message in (
        ({"angle": 5.0}, "is a dict with the parts velocity, angle, got a dict with angle"),
        (
            {"angle": 5.0, "velocity": [1, 2, 3]},
            "has 3 numbers in all its parts, got the shapes velocity (3,), angle ()",
        ),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            policy(wrong)


def test_a_policy_of_arrays_refuses_dicts(tmp_path: Path) -> None:
    run = neoteny.train(tiny(), out=tmp_path / "run", make_env=Own, quiet=True)
    with pytest.raises(UsageError, match="an observation of this policy is an array, got a dict with a"):
        neoteny.load_policy(run)({"a": np.zeros(3)})


MODULE = """
import gymnasium as gym

gym.register("OwnPendulum-v0", "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=50)
"""


def test_a_registered_environment_of_ones_own_in_the_current_directory(tmp_path: Path) -> None:
    """As the installed command does it, which does not look in the current directory by itself."""
    (tmp_path / "my_pendulum.py").write_text(MODULE)
    small = "--steps 100 --learning-starts 50 --batch-size 16 --widths 16 --probe-every 0 --eval-every 0"
    words = f"train td3 --env my_pendulum:OwnPendulum-v0 --out run {small}".split()
    for command in (words, ["evaluate", "run", "--episodes", "1"], ["resume", "run", "--steps", "0.12k"]):
        code = f"import sys; from neoteny.cli import main; sys.exit(main({command!r}))"
        done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if command[0] == "evaluate":
            assert done.stdout.startswith("1 episode: mean return -")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("Hoper-v5", "Did you mean: `Hopper`?"),
        ("dm_control/dog-rn-v0", "Did you mean: `dog-run`?"),
        ("nowhere:Walk-v0", "there is no environment 'nowhere:Walk-v0'"),
    ],
)
def test_an_environment_that_is_not_there(env: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "td3", "--env", env]) == 2
    assert message in capsys.readouterr().err


GPU = """
import jax, neoteny, sys
from neoteny.agents.configs import TD3Config
from neoteny.errors import UsageError
config = lambda device: neoteny.TrainConfig(
    "Pendulum-v1", TD3Config((8,), learning_starts=50), total_timesteps=20, eval_every=0, device=device
)
try:
    neoteny.train(config("gpu"), out="run", quiet=True)
except UsageError as error:
    print(error)
neoteny.train(config("cpu"), out="run", quiet=True)
"""


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("JAX_PLATFORMS", None)
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    words = "train td3 --env Pendulum-v1 --device gpu --steps 20 --out run".split()
    done = subprocess.run([sys.executable, "-m", "neoteny", *words], **options)
    assert done.returncode == 2
    assert done.stderr.startswith("neoteny train: --device gpu was asked for, and JAX finds no such device here")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    # JAX is imported already, and has not started: the device still counts, and a second attempt may ask for another
    done = subprocess.run([sys.executable, "-c", GPU], **options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("--device gpu was asked for, and JAX finds no such device here")
    assert (tmp_path / "run" / "DONE").exists()


def test_what_a_video_needs_is_named_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = neoteny.train(tiny("Pendulum-v1"), out=tmp_path / "run", quiet=True)
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.setattr("neoteny.training.evaluation.play", lambda *_: pytest.fail("it was played"))
    assert main(["evaluate", str(run), "--video"]) == 2
    said = capsys.readouterr().err
    assert "--video cannot render Pendulum-v1: pygame is not installed" in said
    assert "GL" not in said


class NanAtReset(Own):
    """From the episode `since` on, the first observation is NaN."""

    def __init__(self, since: int) -> None:
        super().__init__()
        self.since, self.episodes = since, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, info = super().reset(seed=seed)
        self.episodes += 1
        return (obs * np.nan if self.episodes > self.since else obs), info


def test_nan_at_the_first_reset(tmp_path: Path) -> None:
    said = refused(tmp_path, make_env=lambda: NanAtReset(0))
    assert said == "reset of NanAtReset returned NaN or infinity in its observation: every number must be finite"


def test_nan_at_a_later_reset_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunStopped, match="gave observations or rewards that are not finite"):
        neoteny.train(tiny(), make_env=lambda: NanAtReset(2), out=tmp_path / "run", quiet=True)


class Normalised(nn.Module):
    """A network with running statistics, which agents do not keep."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.BatchNorm(use_running_average=False)(nn.Dense(8)(x))


class Random(nn.Module):
    """A network that needs a random key, which agents do not give."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dropout(0.5, deterministic=False)(nn.Dense(8)(x))


def test_a_network_with_state_or_randomness(tmp_path: Path) -> None:
    said = refused(tmp_path, make_env=Own, network=Normalised())
    assert said == "network may have parameters only, and this one also has batch_stats"
    assert "network fails on a batch of observations" in refused(tmp_path, make_env=Own, network=Random())


class Plain(nn.Module):
    """A network of one layer."""

    width: int = 8

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.relu(nn.Dense(self.width)(x))


def test_a_run_with_a_network_of_ones_own_on_the_command_line(tmp_path: Path, capsys: Any) -> None:
    run = neoteny.train(tiny("Pendulum-v1", checkpoint_every=60), out=tmp_path / "run", network=Plain(), quiet=True)
    for words in (["evaluate", str(run)], ["resume", str(run), "--steps", "120"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert "was trained with a network of your own: give it with network=... in Python" in said
        assert said.count("\n") == 1
    with pytest.raises(UsageError, match=r"was trained with another network, Plain.* width = 8 .* width = 9 "):
        neoteny.load_policy(run, network=Plain(9))


def test_what_is_no_run(tmp_path: Path, capsys: Any) -> None:
    assert main(["inspect", str(tmp_path / "nowhere")]) == 2
    assert f"there is no {tmp_path / 'nowhere'}: name the directory of a run" in capsys.readouterr().err
    inside = tmp_path / "runs" / "one"
    inside.mkdir(parents=True)
    (inside / "config.json").write_text("{}")
    assert main(["inspect", str(tmp_path / "runs")]) == 2
    assert f"it has no config.json; a run inside it is {inside}" in capsys.readouterr().err
