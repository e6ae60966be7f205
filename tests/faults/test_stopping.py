"""Signals, values that are not finite, and environments that fail: a run stops where it can be resumed, or goes on."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

import neoteny
from killing import committed, every_signal_heard, finish, same, start
from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.cli import main
from neoteny.errors import RunStopped
from neoteny.remedies import ShrinkPerturb
from neoteny.replay.buffer import ReplayBuffer
from neoteny.runs import files
from neoteny.runs.records import read_lines, read_metrics
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.training import setup
from patience import HANG

AGENT = TD3Config((16,), batch_size=16, learning_starts=100)
NO_PROBES = PlasticityConfig(probe_every=0)
"""Compiling them would take most of the time of these tests."""


def tiny(**options: Any) -> TrainConfig:
    replay = ReplayConfig(capacity=1_000)
    settings = {
        "agent": AGENT,
        "replay": replay,
        "total_timesteps": 300,
        "eval_every": 0,
        "log_every": 50,
        "plasticity": NO_PROBES,
    }
    return TrainConfig("Pendulum-v1", **{"checkpoint_every": 1e9, **settings, **options})


PENDULUM = (
    "train td3 --env Pendulum-v1 --steps 12000 --learning-starts 100 --widths 16 --batch-size 16 --log-every 500 "
    "--capacity 2000 --probe-every 0 --eval-every 4000 --eval-episodes 3 --replay per --checkpoint-every 1000"
).split()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_go_on(number: signal.Signals, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(*PENDULUM, "--out", str(run))
    while len(read_metrics(run)) < 4:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 128 + number
    step = committed(run)
    assert step > 500
    assert f"Stopped at step {step:,}; saved at step {step:,}, to go on with: neoteny resume {run}" in said
    assert f"Going on with {run} at step {step:,} of 12,000." in finish(start("resume", str(run)))
    whole = tmp_path / "whole"
    finish(start(*PENDULUM, "--out", str(whole)))
    same(run, whole)


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path) -> None:
    """Even while the first waits for a step that never ends."""
    run = tmp_path / "run"
    process = python_here(f"neoteny.train(tiny(), out={str(run)!r}, make_env=Stuck, quiet=True)")
    assert process.stdout is not None
    assert "stuck\n" in process.stdout
    process.send_signal(signal.SIGINT)
    assert "asked to stop, and stuck\n" in process.stdout
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert "the last checkpoint is whole" in said
    finish(python_here(f"neoteny.resume({str(run)!r}, make_env=lambda: gym.make('Pendulum-v1'), quiet=True)"))


def python_here(code: str) -> subprocess.Popen[str]:
    """Run this code, which may use what this file defines, in a process of its own."""
    with every_signal_heard():
        return subprocess.Popen(
            [sys.executable, "-c", f"from test_stopping import *\n{code}"],
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


class Counting(gym.Env):
    """Counts its steps; what happens at which count is up to its heirs. Not to be saved."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))
    total = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        type(self).total += 1
        return np.full(3, self.count, np.float32), 0.0, False, self.count == 20, {}


class Stuck(Counting):
    """Has a step that never ends, and says when it is in it and when the first signal has been heard."""

    def step(self, action: Any) -> Any:
        if self.count == 5:
            print("stuck", flush=True)
            stop = signal.getsignal(signal.SIGINT).__self__  # type: ignore[union-attr]
            while stop.signal is None:
                time.sleep(0.01)
            print("asked to stop, and stuck", flush=True)
            while True:
                time.sleep(0.01)
        return super().step(action)


class Failing(Counting):
    mended = False

    def step(self, action: Any) -> Any:
        if type(self).total == 150 and not self.mended:
            raise ZeroDivisionError("a mistake of the user's")
        return super().step(action)


class NotFinite(Counting):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if type(self).total % 50 == 0:
            obs[1] = math.nan
        if type(self).total % 70 == 0:
            reward = 1e39  # finite here, and not as the float32 that is stored
        return obs, reward, terminated, truncated, info


@pytest.fixture(autouse=True)
def _from_the_start() -> None:
    for kind in (Counting, Stuck, Failing, NotFinite):
        kind.total = 0


def remember_buffers(monkeypatch: Any) -> list[Any]:
    buffers: list[Any] = []
    plain = setup._make_buffer
    monkeypatch.setattr(setup, "_make_buffer", lambda *a: buffers.append(plain(*a)) or buffers[-1])
    return buffers


def test_an_environment_that_raises(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    run = tmp_path / "run"
    with pytest.raises(ZeroDivisionError, match="a mistake of the user's") as raised:
        neoteny.train(tiny(), out=run, make_env=Failing, quiet=True)
    assert raised.traceback[-1].name == "step"
    assert raised.traceback[-1].path.name == "test_stopping.py"
    assert raised.value.__notes__ == [
        f"neoteny: this was raised at step 150; saved at step 150, to go on with: neoteny resume {run}"
    ]
    monkeypatch.setattr(Failing, "mended", True)
    buffers = remember_buffers(monkeypatch)
    neoteny.resume(run, make_env=Failing, quiet=True)
    assert "so the episode begins again" in capsys.readouterr().err
    restarted = [line for line in read_metrics(run) if "episodes_restarted" in line]
    assert restarted == [{"step": 150, "episodes_restarted": 1}]
    held = buffers[0].gather(np.arange(300))
    numbers = 299 - np.arange(300)
    assert held["truncated"][numbers == 149] == 1.0  # no return runs on into the new episode
    np.testing.assert_array_equal(held["next_obs"], held["obs"] + 1)


class FailingReset(NotFinite):
    """Returns NaN at the 150th step, and then cannot be reset, unless it is mended."""

    mended = False

    def reset(self, **arguments: Any) -> Any:
        if type(self).total == 150 and not self.mended:
            raise ZeroDivisionError("a mistake of the user's")
        return super().reset(**arguments)


def test_an_environment_whose_reset_raises_after_nan(tmp_path: Path, monkeypatch: Any) -> None:
    run = tmp_path / "run"
    FailingReset.total = 0
    with pytest.raises(ZeroDivisionError) as raised:
        neoteny.train(tiny(checkpoint_every=0), out=run, make_env=FailingReset, quiet=True)
    assert raised.value.__notes__ == [
        f"neoteny: this was raised at step 150; saved at step 150, to go on with: neoteny resume {run}"
    ]
    monkeypatch.setattr(FailingReset, "mended", True)
    neoteny.resume(run, make_env=FailingReset, quiet=True)
    assert (run / "DONE").exists()
    assert {"step": 150, "episodes_restarted": 1} in read_metrics(run)


@pytest.mark.parametrize("error", [MemoryError(), OSError(5, "Input/output error"), SystemExit(3)])
def test_any_error_saves_first(error: BaseException, tmp_path: Path, monkeypatch: Any) -> None:
    run = tmp_path / "run"
    plain, drawn = ReplayBuffer.sample, []

    def fails_once(self: ReplayBuffer, *arguments: Any, **more: Any) -> Any:
        drawn.append(1)
        if len(drawn) == 60:
            raise error
        return plain(self, *arguments, **more)

    monkeypatch.setattr(ReplayBuffer, "sample", fails_once)
    with pytest.raises(type(error)) as raised:
        neoteny.train(tiny(), out=run, quiet=True)
    assert f"saved at step 159, to go on with: neoteny resume {run}" in raised.value.__notes__[-1]
    assert committed(run) == 159
    neoteny.resume(run, quiet=True)
    last = [line for line in read_metrics(run) if "updates" in line][-1]
    assert (last["step"], last["updates"]) == (300, 200)


def test_a_remedy_that_fails_is_applied_after_resuming(tmp_path: Path, monkeypatch: Any) -> None:
    run = tmp_path / "run"
    plasticity = PlasticityConfig(probe_every=0)
    plain = setup.compiled_surgeries

    def failing(*arguments: Any) -> Any:
        def apply(*_: Any) -> Any:
            raise MemoryError

        return tuple((remedy, apply) for remedy, _ in plain(*arguments))

    with monkeypatch.context() as broken:
        broken.setattr(setup, "compiled_surgeries", failing)
        with pytest.raises(MemoryError):
            neoteny.train(tiny(plasticity=plasticity, remedies=(ShrinkPerturb(every=60),)), out=run, quiet=True)
    neoteny.resume(run, quiet=True)
    assert [line["updates"] for line in read_metrics(run) if "remedy" in line] == [60, 120, 180]


def test_an_environment_that_raises_in_evaluation_loses_no_episode(tmp_path: Path, monkeypatch: Any) -> None:
    class Fragile(gym.Wrapper):
        """Fails in the third episode that any copy of it begins."""

        begun, mended = 0, False

        def reset(self, **arguments: Any) -> Any:
            type(self).begun += 1
            if type(self).begun == 3 and not self.mended:
                raise ZeroDivisionError
            return self.env.reset(**arguments)

        def get_state(self) -> Any:
            return {}

        def set_state(self, state: Any) -> None:
            pass

    def make_env() -> gym.Env:
        return Fragile(gym.make("Pendulum-v1"))

    config = tiny(eval_every=150, eval_episodes=2)
    with pytest.raises(ZeroDivisionError):
        neoteny.train(config, out=tmp_path / "run", make_env=make_env, quiet=True)
    Fragile.mended = True
    neoteny.resume(tmp_path / "run", make_env=make_env, quiet=True)
    same(tmp_path / "run", neoteny.train(config, out=tmp_path / "whole", make_env=make_env, quiet=True))


def test_the_command_line_wants_make_env_in_python(tmp_path: Path, capsys: Any) -> None:
    run = neoteny.train(tiny(total_timesteps=120), out=tmp_path / "run", make_env=Counting, quiet=True)
    assert main(["resume", str(run), "--steps", "200"]) == 2
    assert "was trained with make_env: go on by neoteny.resume(run, make_env=...)" in capsys.readouterr().err


def test_an_environment_that_cannot_be_saved_restarts(tmp_path: Path, capsys: Any) -> None:
    run = neoteny.train(tiny(total_timesteps=130), out=tmp_path / "run", make_env=Counting, quiet=True)
    assert "The environment cannot be saved" in capsys.readouterr().err
    assert "Counting" in read_lines(run / "timing.jsonl")[1]["unsaved_environment"]
    neoteny.resume(run, steps=200, make_env=Counting, quiet=True)
    assert {"step": 130, "episodes_restarted": 1} in read_metrics(run)


@pytest.mark.parametrize("num_envs", [1, 2])
def test_what_is_not_finite_is_not_stored(num_envs: int, tmp_path: Path, monkeypatch: Any) -> None:
    buffers = remember_buffers(monkeypatch)
    config = tiny(num_envs=num_envs, total_timesteps=400, replay=ReplayConfig(capacity=1_000, n_step=3))
    run = neoteny.train(config, out=tmp_path / "run", make_env=NotFinite, quiet=True)
    dropped = [line["dropped_steps"] for line in read_metrics(run) if "dropped_steps" in line]
    bad = len({t // num_envs for t in range(400) if (t + 1) % 50 == 0 or (t + 1) % 70 == 0})
    assert dropped == list(range(1, bad + 1))
    buffer = buffers[0]
    assert buffer.clock == 400 - num_envs * bad
    assert np.isfinite(buffer.rows).all()
    one = buffer.layout.unpack(buffer.rows[: buffer.clock], "next_obs")[:, 0]
    first = buffer.layout.unpack(buffer.rows[: buffer.clock], "obs")[:, 0]
    ended = buffer.layout.unpack(buffer.rows[: buffer.clock], "truncated")
    for env in range(num_envs):  # an episode goes on from one row to the next, unless the row says that it ended
        a, b, e = one[env::num_envs], first[env::num_envs], ended[env::num_envs]
        np.testing.assert_array_equal(a[:-1][e[:-1] == 0], b[1:][e[:-1] == 0])
    again = neoteny.resume(run, steps=500, make_env=NotFinite, quiet=True)
    assert json.loads((again / "metrics.jsonl").read_text().splitlines()[-1])["critic_loss"] is not None


def test_an_environment_that_is_never_finite(tmp_path: Path) -> None:
    class Never(Counting):
        def step(self, action: Any) -> Any:
            return np.zeros(3, np.float32), math.nan, False, False, {}

    with pytest.raises(RunStopped, match="not finite, 100 steps in a row, at step 100; saved at step 100, to go on"):
        neoteny.train(tiny(), out=tmp_path / "run", make_env=Never, quiet=True)


class Overflowing(Counting):
    """Rewards that float32 holds, and whose squares it does not, from step `since` on for `many` steps."""

    since, many = 150, 1

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(action)
        huge = self.since <= type(self).total < self.since + self.many
        return obs, 3e38 if huge else 0.0, terminated, truncated, info


AGENTS = {"td3": AGENT, "sac": SACConfig(actor_width=8, critic_width=8, batch_size=16, learning_starts=100)}


@pytest.mark.parametrize("name", AGENTS)
def test_on_nan_halt(name: str, tmp_path: Path) -> None:
    Overflowing.total, Overflowing.many = 0, 1
    run = tmp_path / "run"
    config = tiny(agent=AGENTS[name], total_timesteps=2_000)
    with pytest.raises(RunStopped, match="had a loss or gradient that is not finite, and was not made") as stopped:
        neoteny.train(config, out=run, make_env=Overflowing, quiet=True)
    assert f"neoteny resume {run}" in str(stopped.value)
    (dump,) = (run / "nan").iterdir()
    tree = files.decode(dump.read_bytes())
    assert 149 in tree["slots"]
    assert tree["rows"].shape[0] == len(tree["slots"]) == 16
    step = committed(run)
    assert f"at step {step:,}" in str(stopped.value)
    (saved,) = (run / "checkpoint").glob(f"{step:012}-*.npz")
    state = files.decode(saved.read_bytes())
    for kind in ("parameters", "optimiser"):
        assert all(np.isfinite(leaf).all() for leaf in state["agent"][kind].values())
    neoteny.resume(run, make_env=Overflowing, on_nan="skip", quiet=True)
    last = [line for line in read_metrics(run) if "skipped_updates" in line][-1]
    assert last["skipped_updates"] >= 1


class Clock(gym.Env):
    """Counts, and can be saved; the reward after 150 steps is one that no update survives."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    count = 0

    def reset(self, **arguments: Any) -> Any:
        super().reset(**arguments)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        obs = np.sin(self.count * np.arange(1, 4) + action).astype(np.float32)
        return obs, 3e38 if self.count == 150 else float(obs[0]), False, self.count % 40 == 0, {}

    def get_state(self) -> dict[str, int]:
        return {"count": self.count}

    def set_state(self, state: dict[str, int]) -> None:
        self.count = state["count"]


@pytest.mark.parametrize("replay", ["uniform", "per"])
def test_a_run_that_halted_goes_on_as_one_that_skips(replay: str, tmp_path: Path) -> None:
    """An update is under way when the one before proves not to be finite: a run stops between ticks all the same."""
    config = tiny(total_timesteps=400, replay=ReplayConfig(replay, capacity=1_000))
    halted = tmp_path / "halted"
    with pytest.raises(RunStopped):
        neoteny.train(config, out=halted, make_env=Clock, quiet=True)
    neoteny.resume(halted, make_env=Clock, on_nan="skip", quiet=True)
    skipped = neoteny.train(replace(config, on_nan="skip"), out=tmp_path / "skipped", make_env=Clock, quiet=True)
    same(halted, skipped)


@pytest.mark.parametrize("replay", ["uniform", "per"])
@pytest.mark.parametrize("utd", [1.0, 3.0])
def test_on_nan_skip(replay: str, utd: float, tmp_path: Path) -> None:
    Overflowing.total, Overflowing.many = 0, 1
    agent = TD3Config((16,), batch_size=4, learning_starts=100, utd=utd)
    config = tiny(agent=agent, replay=ReplayConfig(replay, capacity=400), on_nan="skip", total_timesteps=800)
    run = neoteny.train(config, out=tmp_path / "run", make_env=Overflowing, quiet=True)
    last = [line for line in read_metrics(run) if "skipped_updates" in line][-1]
    assert 0 < last["skipped_updates"] < last["updates"]
    assert last["critic_loss"] is not None
    obs = np.zeros(3, np.float32)
    assert np.isfinite(neoteny.load_policy(run)(obs)).all()


def test_on_nan_skip_halts_after_100_in_a_row(tmp_path: Path) -> None:
    Overflowing.total, Overflowing.many = 0, 10_000
    config = tiny(on_nan="skip", total_timesteps=2_000, replay=ReplayConfig(capacity=100))
    with pytest.raises(RunStopped, match="100 updates in a row, the last at step"):
        neoteny.train(config, out=tmp_path / "run", make_env=Overflowing, quiet=True)


class Rough(Clock):
    """Every 13th reward is one that no update survives; the process dies at the step `dies_at`."""

    dies_at = 0

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.count == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return obs, 3e38 if self.count % 13 == 0 else reward, terminated, truncated, info


def rough(replay: str, **options: Any) -> TrainConfig:
    """Updates that are not finite, and a log so often that some fall between two lines."""
    agent = replace(AGENT, batch_size=4)
    return tiny(agent=agent, replay=ReplayConfig(replay, capacity=60), on_nan="skip", log_every=7, **options)


@pytest.mark.parametrize("replay", ["uniform", "per"])
def test_skipped_updates_do_not_depend_on_checkpoints(replay: str, tmp_path: Path) -> None:
    seldom, often, never = (
        neoteny.train(rough(replay, checkpoint_every=every), out=tmp_path / name, make_env=Rough, quiet=True)
        for name, every in (("seldom", 1e9), ("often", 1e-9), ("never", 0))
    )
    skipped = [line["skipped_updates"] for line in read_metrics(seldom) if "skipped_updates" in line]
    assert len(set(skipped)) > 10
    for other in (often, never):
        assert (other / "metrics.jsonl").read_text() == (seldom / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_skipped_updates_do_not_depend_on_a_kill(tmp_path: Path) -> None:
    run = tmp_path / "run"
    often = "rough('uniform', checkpoint_every=1e-9)"
    killed = python_here(f"Rough.dies_at = 203\nneoteny.train({often}, out={str(run)!r}, make_env=Rough)")
    killed.communicate(timeout=HANG)
    assert killed.returncode == -signal.SIGKILL
    finish(python_here(f"neoteny.resume({str(run)!r}, make_env=Rough, quiet=True)"))
    whole = neoteny.train(rough("uniform", checkpoint_every=1e9), out=tmp_path / "whole", make_env=Rough, quiet=True)
    assert (run / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()


@pytest.mark.parametrize("agent", [*AGENTS.values(), DDQNConfig((16,), batch_size=4)], ids=["td3", "sac", "ddqn"])
def test_an_update_that_is_not_finite_changes_no_weights(agent: Any) -> None:
    from neoteny.agents.problem import Problem
    from neoteny.agents.registry import make_agent

    discrete = isinstance(agent, DDQNConfig)
    bound = np.ones(2, np.float32)
    problem = Problem((3,), False, 2, None if discrete else -bound, None if discrete else bound, 100)
    learner = make_agent(agent, problem)
    state = learner.init(jax.random.key(0))
    obs = np.ones((1, 4, 3), np.float32)
    action = np.zeros((1, 4), np.int32) if discrete else np.zeros((1, 4, 2), np.float32)
    flags = np.zeros((1, 4), np.float32)
    batch = {"obs": obs, "next_obs": obs, "action": action, "terminated": flags, "truncated": flags}
    huge = np.full((1, 4), 3e38, np.float32)
    after, report = jax.jit(learner.update)(state, {**batch, "reward": huge})
    assert not np.asarray(report.finite).any()
    random = ("key", "acting")
    for name in state.__dataclass_fields__:
        if name not in random:
            jax.tree.map(np.testing.assert_array_equal, getattr(after, name), getattr(state, name))
    fine, report = jax.jit(learner.update)(state, {**batch, "reward": flags})
    assert np.asarray(report.finite).all()
    assert int(fine.updates) == 1
