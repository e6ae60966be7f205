"""Callbacks, stopping at a target return, and the best policy beside the last; with resumes in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import neoteny
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.runs.records import is_finished, read_metrics, read_timing
from neoteny.training import Callback, Moment, PlasticityConfig, ReplayConfig, TD3Config, TrainConfig


def config(**options: Any) -> TrainConfig:
    return TrainConfig(
        "Pendulum-v1",
        TD3Config((8,), batch_size=8, learning_starts=20),
        ReplayConfig(capacity=400),
        PlasticityConfig(probe_every=0),
        **{"total_timesteps": 100, "eval_every": 20, "eval_episodes": 2, **options},
    )


def make_env() -> gym.Env:
    return gym.make("Pendulum-v1", max_episode_steps=10)


def train(out: Path, callbacks: Any = (), **options: Any) -> Path:
    return neoteny.train(config(**options), out=out, make_env=make_env, callbacks=callbacks, quiet=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that none of the others may differ from."""
    return train(tmp_path_factory.mktemp("runs") / "whole")


def evaluations(run: Path) -> dict[int, float]:
    return {line["step"]: line["eval_return"] for line in read_metrics(run) if "eval_return" in line}


class Watching(Callback):
    """Notes everything that it is told, and stops where it is asked to."""

    def __init__(self, stop: tuple[str, int] | None = None) -> None:
        self.told: list[tuple[str, int, Any]] = []
        self.stop = stop

    def _note(self, name: str, moment: Moment) -> str | None:
        self.told.append((name, moment.step, moment.returns))
        return f"it is {name} {moment.step}" if (name, moment.step) == self.stop else None

    def after_step(self, moment: Moment) -> str | None:
        return self._note("step", moment)

    def after_evaluation(self, moment: Moment) -> str | None:
        return self._note("evaluation", moment)

    def after_checkpoint(self, moment: Moment) -> str | None:
        return self._note("checkpoint", moment)


def test_callbacks_are_told_everything_and_change_nothing(whole: Path, tmp_path: Path) -> None:
    watching = Watching()
    watched = train(tmp_path / "watched", [watching])
    assert (whole / "metrics.jsonl").read_bytes() == (watched / "metrics.jsonl").read_bytes()
    of = {name: [(step, r) for said, step, r in watching.told if said == name] for name, _, _ in watching.told}
    assert of["step"] == [(step, None) for step in range(1, 101)]
    assert of["checkpoint"] == [(0, None), (100, None)]
    logged = {line["step"]: line["eval_returns"] for line in read_metrics(watched) if "eval_returns" in line}
    assert {step: list(returns) for step, returns in of["evaluation"]} == logged
    assert list(logged) == [20, 40, 60, 80, 100]
    order = [(name, step) for name, step, _ in watching.told]
    assert order[:2] == [("checkpoint", 0), ("step", 1)]
    assert order.index(("step", 20)) < order.index(("evaluation", 20)) < order.index(("step", 21))


@pytest.mark.parametrize("where", [("step", 33), ("evaluation", 40), ("checkpoint", 0), ("step", 100)], ids=str)
def test_a_callback_stops_a_run_which_goes_on_to_the_same_bits(
    where: tuple[str, int], whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path / "run", [Watching(where)])
    name, step = where
    if step == 100:  # the last step: there is nothing to stop
        assert is_finished(run)
        return
    said = capsys.readouterr().err
    assert f"Stopped at step {step}, since it is {name} {step}; saved at step {step}, to go on with: neoteny" in said
    assert not is_finished(run)
    assert [line["stopped"] for line in read_timing(run) if "stopped" in line] == [f"it is {name} {step}"]
    watching = Watching()
    neoteny.resume(run, make_env=make_env, callbacks=[watching], quiet=True)
    assert is_finished(run)
    assert watching.told[0][:2] == ("step", step + 1)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert (run / "policy/best.npz").read_bytes() == (whole / "policy/best.npz").read_bytes()


def test_a_moment_has_the_policy_as_it_was(tmp_path: Path) -> None:
    """Later updates do not change it; at the end it is the one that is saved."""
    obs = np.random.default_rng(0).normal(size=(4, 3))
    seen: list[tuple[Any, Any]] = []

    class Policies(Callback):
        def after_evaluation(self, moment: Moment) -> None:
            policy = moment.policy()
            seen.append((policy, policy(obs)))
            np.testing.assert_array_equal(neoteny.load_policy(moment.directory)(obs), policy(obs))
            assert moment.updates == moment.step - 20

    train(tmp_path / "run", [Policies()])
    for policy, then in seen:
        np.testing.assert_array_equal(policy(obs), then)
    assert not np.array_equal(seen[0][1], seen[-1][1])


def test_an_error_in_a_callback_is_shown_and_the_run_is_saved(tmp_path: Path) -> None:
    class Wrong(Callback):
        def after_step(self, moment: Moment) -> str | None:
            if moment.step == 30:
                raise ZeroDivisionError("of mine")
            return None

    with pytest.raises(ZeroDivisionError, match="of mine") as caught:
        train(tmp_path / "run", [Wrong()])
    assert "saved at step 30" in caught.value.__notes__[0]


def test_a_target_return_ends_a_run(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluations(whole)
    assert len(set(found.values())) == 5
    target = sorted(found.values())[-2]  # neither the worst nor, which would show less, the best
    first = min(step for step, value in found.items() if value >= target)
    run = train(tmp_path / "run", stop_at_return=target)
    assert list(evaluations(run)) == [step for step in found if step <= first]
    assert is_finished(run)
    assert f"Done at step {first}, since the mean return of an evaluation" in capsys.readouterr().err
    if first < 100:
        with pytest.raises(UsageError, match=f"is done at step {first}, since it reached --stop-at-return"):
            neoteny.resume(run, make_env=make_env)
        with pytest.raises(UsageError, match="a higher --stop-at-return goes on"):
            neoteny.resume(run, make_env=make_env, stop_at_return=target - 1)
        neoteny.resume(run, make_env=make_env, stop_at_return=max(found.values()) + 1, quiet=True)
        assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_a_run_that_was_killed_at_its_target_is_done_when_it_is_resumed(whole: Path, tmp_path: Path) -> None:
    """After its last checkpoint, and before it was marked as done."""
    found = evaluations(whole)
    run = train(tmp_path / "run", stop_at_return=found[20])
    assert list(evaluations(run)) == [20]
    (run / "DONE").unlink()
    neoteny.resume(run, make_env=make_env, quiet=True)
    assert is_finished(run)
    assert list(evaluations(run)) == [20]


def test_the_best_policy_is_that_of_the_best_evaluation(tmp_path: Path) -> None:
    kept: dict[int, Any] = {}

    class Keep(Callback):
        def after_evaluation(self, moment: Moment) -> None:
            kept[moment.step] = moment.policy()

    run = train(tmp_path / "run", [Keep()])
    found = evaluations(run)
    best = max(found, key=lambda step: found[step])
    obs = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_array_equal(neoteny.load_policy(run, best=True)(obs), kept[best](obs))
    np.testing.assert_array_equal(neoteny.load_policy(run)(obs), kept[100](obs))
    by_best = neoteny.evaluate(run, env=make_env, best=True, episodes=3)
    assert by_best == neoteny.evaluate(kept[best], env=make_env, episodes=3)


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def after_step(self, moment: Moment) -> str | None:
        return "of the test" if moment.step == self.step else None


def test_a_best_policy_of_a_future_that_is_made_anew_is_not_kept(tmp_path: Path) -> None:
    """Killed after an evaluation that no checkpoint has: what is resumed has the best of its own past."""
    run = train(tmp_path / "run", [StopAt(30)])
    before = (run / "policy/best.npz").read_bytes()
    other = train(tmp_path / "other", seed=9)
    future = (other / "policy/best.npz").read_bytes()
    assert future != before
    (run / "policy/best.npz").write_bytes(future)
    neoteny.resume(run, make_env=make_env, callbacks=[StopAt(31)], quiet=True)
    assert (run / "policy/best.npz").read_bytes() == before
    none = train(tmp_path / "none", [StopAt(10)])
    (none / "policy").mkdir(exist_ok=True)
    (none / "policy/best.npz").write_bytes(before)
    neoteny.resume(none, make_env=make_env, callbacks=[StopAt(11)], quiet=True)
    assert not (none / "policy/best.npz").exists()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "train td3 --env Pendulum-v1 --steps 60 --learning-starts 20 --widths 8 --batch-size 8 --probe-every 0"
    more = ["--eval-every", "20", "--eval-episodes", "1", "--stop-at-return", "-1e9", "--out", str(tmp_path / "run")]
    assert main([*words.split(), *more]) == 0
    run = tmp_path / "run"
    assert list(evaluations(run)) == [20]
    capsys.readouterr()
    assert main(["resume", str(run)]) == 2
    assert main(["resume", str(run), "--stop-at-return", "0.5"]) == 0
    assert list(evaluations(run)) == [20, 40, 60]
    capsys.readouterr()
    assert main(["evaluate", str(run), "--best", "--episodes", "2", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)
    assert best["returns"] == list(neoteny.evaluate(run, best=True, episodes=2).returns)


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    class Yes(Callback):
        def after_step(self, moment: Moment) -> Any:
            return True

    for said, attempt in {
        "must be a neoteny.training.Callback, got .*Watching.*, which is a class: write": lambda: train(
            tmp_path / "a", [Watching]
        ),
        "each of callbacks must be a neoteny.training.Callback, got 3": lambda: train(tmp_path / "a", [3]),
        "callbacks must be a list of neoteny.training.Callback, got <": lambda: train(tmp_path / "a", Watching()),
        "Yes.after_step must return None, or a text that says why the run stops, got True": lambda: train(
            tmp_path / "b", [Yes()]
        ),
        "--stop-at-return 3 needs evaluations, and --eval-every 0 makes none": lambda: config(
            stop_at_return=3.0, eval_every=0
        ),
        "--stop-at-return must be finite, got nan": lambda: config(stop_at_return=float("nan")),
        "has no best policy: it is kept from the run's first evaluation on": lambda: neoteny.load_policy(
            train(tmp_path / "c", eval_every=0), best=True
        ),
        "best is for a run, and this is a policy": lambda: neoteny.evaluate(
            lambda obs: np.zeros((len(obs), 1)), env="Pendulum-v1", best=True
        ),
    }.items():
        with pytest.raises(UsageError, match=said):
            attempt()
