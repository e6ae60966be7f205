"""A run from end to end: its records, that it repeats, what it refuses, what comes out of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium import spaces

import neoteny
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.machine.threads import threads_in_force
from neoteny.remedies import ReDo
from neoteny.runs.records import read_config, read_metrics
from neoteny.runs.run import Run
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training import setup

TINY = TD3Config((16,), batch_size=16, learning_starts=100)
REPLAY = ReplayConfig("swd", decay_steps=200, capacity=1_000)
NO_PROBES = PlasticityConfig(probe_every=0)
"""Compiling them would take most of the time of these tests."""


def tiny(**options: Any) -> TrainConfig:
    settings = {
        "agent": TINY,
        "replay": REPLAY,
        "total_timesteps": 300,
        "eval_every": 150,
        "eval_episodes": 2,
        "plasticity": NO_PROBES,
    }
    return TrainConfig("Pendulum-v1", **{**settings, "log_every": 50, **options})


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "neoteny", *words], capture_output=True, text=True)


def test_the_records_of_a_run(tmp_path: Path) -> None:
    run = neoteny.train(tiny(), out=tmp_path / "run", quiet=True)
    config, facts = read_config(run)
    assert config == tiny(threads=config.threads)
    assert {"jax", "flax", "neoteny"} <= facts["versions"].keys()
    assert {"gymnasium", "mujoco"} <= facts["environment"]["versions"].keys()
    metrics = read_metrics(run)
    assert [line["step"] for line in metrics if "updates" in line] == [50, 100, 150, 200, 250, 300]
    last = [line for line in metrics if "updates" in line][-1]
    assert last["updates"] == 200
    assert last["realised_utd"] == 1.0
    assert {"critic_loss", "q", "actor_loss", "age_mean", "age_p95", "effective_sample_size", "entropy"} <= last.keys()
    assert [line["step"] for line in metrics if "eval_return" in line] == [150, 300]
    assert [line["episode_length"] for line in metrics if "episode_return" in line] == [200]
    assert (run / "DONE").exists()
    assert list((run / "tensorboard").glob("events*"))
    timing = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    assert timing[0] == {"step": 0, "seconds": timing[0]["seconds"], "life": 1, "first_step": 0}
    assert all(line["peak_resident_mb"] > 50 for line in timing if "peak_resident_mb" in line)
    assert facts["config"]["threads"] == threads_in_force()
    assert facts["environment"]["observation_keys"] is None
    assert timing[-1]["compilations"] == {"act": 1, "update": 1, "evaluation": 1}


@pytest.mark.parametrize(("num_envs", "utd", "updates"), [(1, 2.0, 400), (4, 0.5, 100), (4, 0.125, 25), (2, 1.0, 200)])
def test_the_realised_utd(num_envs: int, utd: float, updates: int, tmp_path: Path) -> None:
    agent = TD3Config((16,), batch_size=16, learning_starts=100, utd=utd)
    run = neoteny.train(tiny(agent=agent, num_envs=num_envs, eval_every=0), out=tmp_path / "run", quiet=True)
    last = [line for line in read_metrics(run) if "updates" in line][-1]
    assert (last["updates"], last["realised_utd"]) == (updates, utd)


def test_two_processes_with_one_seed_write_the_same_bytes(tmp_path: Path) -> None:
    small = [
        "--steps",
        "300",
        "--learning-starts",
        "100",
        "--batch-size",
        "16",
        "--widths",
        "16",
        "--log-every",
        "50",
        "--eval-every",
        "150",
    ]
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        words = ["train", "td3", "--env", "Pendulum-v1", "--replay", "swd-per", *small, "--seed", seed]
        done = run_command(*words, "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert "300 / 300" in done.stdout
    a, b, c = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["td3", "--env", "CartPole-v1"],
            "td3 needs continuous actions (a Box) and CartPole-v1 has Discrete(2)",
        ),
        (["ddqn", "--env", "Pendulum-v1"], "ddqn needs discrete actions and Pendulum-v1 has Box"),
        (["td3", "--env", "Nowhere-v1"], "there is no environment 'Nowhere-v1'"),
        (["td3", "--env", "Pendulum-v1", "--replay", "swdd"], "there is no replay 'swdd': choose from uniform, swd"),
        (
            ["td3", "--env", "Pendulum-v1", "--replay", "no.such:Thing"],
            "--replay no.such:Thing: ModuleNotFoundError: No module named 'no'",
        ),
        (
            ["td3", "--env", "Pendulum-v1", "--min-weight", "0.2"],
            "--replay uniform has no --min-weight: it takes no",
        ),
        (
            ["td3", "--env", "Pendulum-v1", "--replay", "swd", "--min-weight", "2"],
            "min_weight must be a number",
        ),
        (["sac", "--env", "Pendulum-v1", "--utd", "0.3"], "--utd 0.3 with 1 environment makes 0.3 updates a tick"),
        (["sac", "--env", "Pendulum-v1", "--preset", "nature"], "sac has the presets swd-paper, swd-code, simba"),
        (["td3", "--env", "Pendulum-v1", "--learning-starts", "0"], "--learning-starts must be >= 1, got 0"),
        (["td3", "--env", "Pendulum-v1", "--policy-delay", "0"], "--policy-delay must be >= 1, got 0"),
        (["td3", "--env", "Pendulum-v1", "--gamma", "1.5"], "--gamma must be in [0, 1], got 1.5"),
        (["td3", "--env", "Pendulum-v1", "--capacity", "0"], "capacity must be at least num_envs >= 1, got 0 and 1"),
        (["td3", "--env", "Pendulum-v1", "--capacity", "9_000_000_000_000"], "GB are free"),
        (["td3", "--env", "Pendulum-v1", "--n-step", "0"], "n_step must be >= 1, got 0"),
        (["td3", "--env", "nomodule:Foo-v0"], "there is no environment 'nomodule:Foo-v0'"),
        (["td3", "--env", "Pendulum-v1", "--sticky"], "--sticky is for Atari, and Pendulum-v1 is not"),
        (["ddqn", "--env", "ALE/Pong-v5", "--action-repeat", "3"], "--action-repeat is not for Atari"),
        (["ppo"], "name an agent first, one of td3, sac, ddqn"),
        ([], "name an agent first, one of td3, sac, ddqn"),
        (["td3", "--env", "Pendulum-v1", "--num-envs", "0"], "--num-envs must be >= 1, got 0"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(words: list[str], message: str, capsys: Any, monkeypatch: Any) -> None:
    assert main(["train", *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0, 255, (210, 160, 3), np.uint8), "stacked frames, (stack, height, width)"),
        (spaces.Box(0, 255, (4, 20, 20), np.uint8), "of at least 36 x 36"),
        (spaces.Box(0, 1, (84, 84), np.float32), "ddqn takes a vector, or stacked uint8 frames"),
    ],
)
def test_pixels_of_another_form_are_refused(space: spaces.Box, message: str, tmp_path: Path) -> None:
    class Odd(gym.Env):
        observation_space, action_space = space, spaces.Discrete(2)

    with pytest.raises(UsageError, match=re.escape(message)):
        neoteny.train(tiny(agent=DDQNConfig()), out=tmp_path / "run", make_env=Odd, quiet=True)
    assert not (tmp_path / "run").exists()


class Counter(gym.Env):
    """Observes how many steps the episode has had; cut after 4."""

    observation_space, action_space = spaces.Box(0, 9, (1,), np.float32), spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.count = 0
        return np.array([0.0], np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.array([self.count], np.float32), 0.0, False, self.count == 4, {}


@pytest.mark.parametrize("num_envs", [1, 3])
def test_what_is_stored_after_an_episode_is_its_true_end(num_envs: int, tmp_path: Path, monkeypatch: Any) -> None:
    """Never the reset's observation: the next observation is always one more."""
    buffers = []
    plain = setup._make_buffer

    def remembered(*arguments: Any) -> Any:
        buffers.append(plain(*arguments))
        return buffers[-1]

    monkeypatch.setattr(setup, "_make_buffer", remembered)
    config = tiny(num_envs=num_envs, eval_every=0, total_timesteps=90)
    neoteny.train(config, out=tmp_path / "run", make_env=Counter, quiet=True)
    held = buffers[0].gather(np.arange(90))
    np.testing.assert_array_equal(held["next_obs"], held["obs"] + 1)
    np.testing.assert_array_equal(held["truncated"], held["next_obs"][:, 0] == 4)
    assert not held["terminated"].any()


def test_options_that_would_do_nothing_are_refused(tmp_path: Path) -> None:
    agent = DDQNConfig((16,), cnn_width=64)
    with pytest.raises(UsageError, match="--cnn-width has no use here: CartPole-v1 gives a vector"):
        neoteny.train(TrainConfig("CartPole-v1", agent, total_timesteps=10), out=tmp_path / "run", quiet=True)
    jax.devices()
    with pytest.raises(UsageError, match="device=gpu cannot be set once JAX has started on cpu"):
        neoteny.train(tiny(device="gpu"), out=tmp_path / "run", quiet=True)


def test_a_directory_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    neoteny.train(tiny(total_timesteps=20, eval_every=0), out=tmp_path / "run", quiet=True)
    with pytest.raises(UsageError, match="already contains a run"):
        neoteny.train(tiny(), out=tmp_path / "run", quiet=True)


def test_a_users_network_environment_and_schedule(tmp_path: Path, monkeypatch: Any) -> None:
    class Trunk(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.tanh(nn.Dense(7)(x))

    (tmp_path / "theirs.py").write_text(
        "class Theirs:\n"
        "    def __init__(self, decay_steps):\n        self.steps = decay_steps\n"
        "    def weight(self, age):\n        return 0.5 ** (age / self.steps)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    replay = ReplayConfig("theirs:Theirs", decay_steps=50, capacity=1_000)
    config = tiny(replay=replay, plasticity=PlasticityConfig(probe_every=100))
    run = neoteny.train(
        config, out=tmp_path / "run", make_env=lambda: gym.make("Pendulum-v1"), network=Trunk(), quiet=True
    )
    measured = [line for line in read_metrics(run) if "probe/critics/trainability" in line]
    assert len(measured) == 3
    assert "probe/critics/grama_inactive" not in measured[0]  # which units it has is not known
    redo = tiny(plasticity=PlasticityConfig(probe_every=0), remedies=(ReDo(),))
    with pytest.raises(UsageError, match="--remedy redo does not know the layers of the actor's own network"):
        neoteny.train(redo, out=tmp_path / "redo", network=Trunk(), quiet=True)
    policy = neoteny.load_policy(run, network=Trunk())
    assert policy(np.zeros(3)).shape == (1,)
    with pytest.raises(UsageError, match="was trained with a network of your own"):
        neoteny.load_policy(run)
    with pytest.raises(UsageError, match="an environment made by make_env"):
        neoteny.evaluate(run, network=Trunk())


@pytest.mark.parametrize(
    "agent",
    [
        TINY,
        SACConfig(8, 1, 8, 1, batch_size=16, learning_starts=100),
        DDQNConfig((16,), batch_size=16, learning_starts=100),
    ],
    ids=["td3", "sac", "ddqn"],
)
def test_a_policy_can_be_loaded_alone(agent: Any, tmp_path: Path, capsys: Any) -> None:
    env = "CartPole-v1" if isinstance(agent, DDQNConfig) else "Pendulum-v1"
    size = 4 if isinstance(agent, DDQNConfig) else 3
    config = TrainConfig(env, agent, REPLAY, total_timesteps=300, eval_every=0)
    run = neoteny.train(config, out=tmp_path / "run", quiet=True)
    policy = neoteny.load_policy(run)
    batch = np.random.default_rng(0).normal(size=(5, size))
    actions = policy(batch)
    np.testing.assert_allclose(actions[2], policy(batch[2]), rtol=1e-5)
    noisy = np.stack([policy(batch, deterministic=False) for _ in range(400)])
    assert (noisy != actions).any()
    with pytest.raises(UsageError, match="an observation has shape"):
        policy(np.zeros(size + 1))
    assert main(["evaluate", str(run), "--episodes", "2"]) == main(["inspect", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "2 episodes: mean return" in shown
    assert "done: 300 of 300 steps" in shown


def test_a_directory_without_a_run_is_said_so(tmp_path: Path, capsys: Any) -> None:
    assert main(["inspect", str(tmp_path)]) == 2
    assert "is not a run: it has no config.json" in capsys.readouterr().err


def test_threads_cannot_change_once_jax_computes(tmp_path: Path) -> None:
    import jax.numpy as jnp

    jnp.zeros(1).block_until_ready()
    asked = 1 + int(os.environ.get("PJRT_NPROC", len(os.sched_getaffinity(0))))
    with pytest.raises(UsageError, match="cannot be set once JAX has computed something"):
        neoteny.train(tiny(threads=asked), out=tmp_path / "run", quiet=True)


def test_a_number_that_is_no_number_is_not_hidden(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", tiny(), {})
    run.log(3, critic_loss=float("nan"), q=float("inf"), age_mean=float("nan"), utd=1.0)
    run.close()
    assert read_metrics(tmp_path / "run") == [{"step": 3, "critic_loss": None, "q": None, "utd": 1.0}]


def test_a_configuration_survives_json() -> None:
    for config in (tiny(), tiny(agent=SACConfig()), TrainConfig("CartPole-v1", DDQNConfig())):
        again = TrainConfig.from_json(json.loads(json.dumps(config.to_json())))
        assert again.to_json() == config.to_json()
    assert tiny().run_id() != tiny(seed=2).run_id()
