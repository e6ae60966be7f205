"""`neoteny advise`: on a run, an archive, a buffer of Stable-Baselines3, and on what is none of these."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_up import write_planned, write_run
from neoteny import GeometricDecay, LinearDecay, Schedule, Uniform
from neoteny.cli import main
from neoteny.experiments.plan import PlannedRun
from neoteny.plasticity.drift import age_ranges, named
from neoteny.report.advice import draws_by_the_end, effects, suggestions
from neoteny.report.archive import read_history, write_archive
from neoteny.report.situation import situation_of
from neoteny.settings.config import ReplayConfig, TrainConfig


def advised(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    picture = path.parent / "new" / "advice.png"
    assert main(["advise", str(path), "--out", str(picture), *more]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    return capsys.readouterr().out


def test_a_run_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """20,000 transitions of 1,000,000, with numbers that are summed by hand."""
    said = advised(write_run(tmp_path, "Hopper-v5", "swd", 1, 100.0, decay_steps=5_000), capsys)
    weights = np.maximum(0.1, 1 - np.arange(1, 20_001) / 5_000)
    p = weights / weights.sum()
    assert "td3 on Hopper-v5, swd replay, 20,000 of at most 1,000,000 transitions stored" in said
    assert f"drawn {p[0] * 20_000:.2f} times as often as under uniform replay" in said
    assert f"a mean age of {p @ np.arange(1, 20_001):,.0f} transitions (uniform: 10,000)" in said
    assert f"The effective sample size is {1 / (p**2).sum():,.0f}, " in said
    assert f"{p[2_000:].sum():.0%} of the draws are older than 2,000 transitions" in said
    assert f"{p[10_000:].sum():.0%} older than 10,000" in said
    assert "relative         2,000" in said
    assert "T is 10.0% of the run's 20,000 steps, as the paper has it for td3." in said
    assert "Suggested without a search of your own, by the relative rule: --replay swd --decay-steps auto" in said
    assert "What is not known:\n  How far old data is" in said


def test_an_archive_says_the_same_as_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "runs", "Hopper-v5", "uniform", 1, 100.0)
    archive = tmp_path / "archives" / run.parts[-3] / run.parts[-2] / f"{run.name}.jsonl"
    write_archive(archive, "/".join(run.parts[-3:]), read_history(run), {})
    of_run, of_archive = advised(run, capsys), advised(archive, capsys)
    assert of_run.split("\n", 1)[1].split("Wrote")[0] == of_archive.split("\n", 1)[1].split("Wrote")[0]
    assert "drawn 1.00 times as often" in of_run


@pytest.mark.parametrize(("replay", "decay_steps", "expected"), [("swd", "drift", 777.0), ("swd-per", 500, 500.0)])
def test_drift_where_it_was_measured(replay: str, decay_steps: Any, expected: float, tmp_path: Path) -> None:
    """T of the drift rule is found by summing; a T that moved is the one that it has now."""
    far = np.r_[np.full(10, 0.05), np.full(6, 0.9)]
    config = TrainConfig("Hopper-v5", replay=ReplayConfig(replay, decay_steps=decay_steps), total_timesteps=20_000)
    measures = {**named(20_000, np.arange(16), far), "decay_steps": 777.0}
    run = write_planned(tmp_path, PlannedRun(replay, config), 100.0, measures)
    situation = situation_of(run, False)
    assert situation.schedule.decay_steps == expected  # type: ignore[attr-defined]
    assert situation.drift is not None
    assert any("priorities" in sentence for sentence in situation.unknown) == (replay == "swd-per")
    *_, drift = suggestions(situation)
    of_age = np.repeat(far, np.diff(age_ranges(20_000)))
    ages = np.arange(1, 20_001)

    def drawn(steps: float) -> float:
        beyond = np.maximum(0.1, 1 - ages / steps) - 0.1
        return float(beyond @ of_age / beyond.sum())

    largest = next(steps for steps in np.geomspace(20_000, 200, 700) if drawn(steps) <= 0.15)
    assert drift.rule == "drift"
    assert drift.schedule.decay_steps == pytest.approx(largest, rel=0.02)


@pytest.mark.parametrize(
    "schedule", [Uniform(), LinearDecay(700, 0.1), LinearDecay("auto", 0), GeometricDecay(1e-2, 0)]
)
@pytest.mark.parametrize(
    ("added", "steps", "capacity", "starts"), [(500, 8_000, 9_000, 100), (900, 5_000, 2_000, 1_500)]
)
def test_draws_of_a_transition_are_those_of_every_step_summed(
    schedule: Schedule, added: int, steps: int, capacity: int, starts: int
) -> None:
    total = 0.0
    for step in range(max(added + 1, starts), min(steps, added + capacity) + 1):
        stored, age = min(step, capacity), step - added
        kwargs = {"num_stored": stored} if getattr(schedule, "uses", ()) else {}
        weights = schedule.weight(np.arange(1, stored + 1), **kwargs)
        total += weights[age - 1] / weights.sum() if age <= stored else 0.0
    assert draws_by_the_end(schedule, added, steps, capacity, starts) == pytest.approx(total, rel=0.01, abs=1e-3)


def test_draws_in_closed_form() -> None:
    """V ln(t / i) under uniform replay; 1.035 V for whoever, under a relative T with w_min 0."""
    assert draws_by_the_end(Uniform(), 10_000, 80_000, 10**6, 0) == pytest.approx(math.log(8), rel=1e-3)
    for added in (10_000, 50_000):
        assert draws_by_the_end(LinearDecay("auto", 0), added, 10**6, 10**7, 0) == pytest.approx(1.0354, rel=0.01)
    assert draws_by_the_end(Uniform(), 900, 1_000, 10**6, 5_000) == 0.0


def test_effects_with_several_environments() -> None:
    does = effects(LinearDecay(50, 0.1), 700, 7)
    ages = 1 + np.arange(700) // 7 * 7
    weights = np.maximum(0.1, 1 - ages / 50)
    p = weights / weights.sum()
    assert does.newest == pytest.approx(700 * p[0])
    assert does.older == pytest.approx((p[70:].sum(), p[350:].sum()))


def test_a_buffer_of_stable_baselines3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("stable_baselines3")
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    from neoteny.integrations.sb3 import AgeWeightedReplayBuffer

    space = spaces.Box(-1, 1, (2,), np.float32)
    plain = ReplayBuffer(600, space, space, n_envs=2)
    for _ in range(200):
        plain.add(*[np.zeros((2, 2), np.float32)] * 3, np.zeros(2), np.zeros(2), [{}, {}])
    file = tmp_path / "buffer.pkl"
    file.write_bytes(pickle.dumps(plain))
    assert main(["advise", str(file)]) == 2
    refused = capsys.readouterr().err
    assert refused.count("\n") == 1
    assert "can run any code while it is read: pass --trust if you know who made it" in refused
    said = advised(file, capsys, "--trust")
    assert "a ReplayBuffer of Stable-Baselines3, uniform replay, 400 of at most 600 transitions stored" in said
    times = [sum(1 / (added + age) for age in range(1, 401 - added)) for added in (40, 200, 360)]
    assert "is drawn {:.2f} V, {:.2f} V and {:.2f} V times until now".format(*times) in said
    assert "a buffer contains no policy" in said
    aged = AgeWeightedReplayBuffer.from_buffer(plain, decay_steps=100, min_weight=0.2)
    file.write_bytes(pickle.dumps(aged))
    assert "What it does now: LinearDecay(decay_steps=100, min_weight=0.2)" in advised(file, capsys, "--trust")


class _Empty:
    buffer_size, pos, n_envs, full = 10, 0, 1, False


class _Explosive:
    def __reduce__(self) -> Any:
        return (int, ("not a number",))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read as a saved replay buffer: EOFError"),
        (b"not a pickle", "cannot be read as a saved replay buffer"),
        (pickle.dumps([1, 2]), "contains a list, and not a replay buffer of Stable-Baselines3"),
        (pickle.dumps(_Explosive()), "cannot be read as a saved replay buffer: ValueError"),
        (b"cnowhere.to.be.found\nThing\n.", "nowhere"),
    ],
)
def test_a_pickle_of_something_else(
    data: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "buffer.pkl"
    file.write_bytes(data)
    assert main(["advise", str(file), "--trust"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_an_empty_buffer(tmp_path: Path) -> None:
    from neoteny.errors import UsageError
    from neoteny.report.situation import _of_buffer

    with pytest.raises(UsageError, match="contains 0 transitions, and at least 2 are needed"):
        _of_buffer(tmp_path, _Empty())


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = write_run(tmp_path, "Hopper-v5", "swd", 1, 100.0)
    facts = json.loads((own / "config.json").read_text())
    facts["config"]["replay"]["replay"] = "os:system"
    facts["config"]["replay"]["decay_steps"] = None
    (own / "config.json").write_text(json.dumps(facts))
    begun = write_run(tmp_path, "Ant-v5", "swd", 1, 100.0, done=False)
    (begun / "metrics.jsonl").write_text("")
    (tmp_path / "cut.jsonl").write_text('{"neoteny archive": 1}')
    for words, message in (
        ([str(tmp_path / "nowhere")], "there is no"),
        ([str(tmp_path)], "is not a run: it has no config.json"),
        ([str(own)], "a schedule of its own code, os:system, which is not run here"),
        ([str(begun)], "has logged no steps yet"),
        ([str(tmp_path / "cut.jsonl")], "line 1 is damaged"),
        ([], "the following arguments are required"),
    ):
        assert main(["advise", *words]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1


def test_where_no_picture_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path, "Hopper-v5", "swd", 1, 100.0)
    (tmp_path / "file").write_text("")
    assert main(["advise", str(run), "--out", str(tmp_path / "file" / "a.png")]) == 2
    assert "cannot be written: " in capsys.readouterr().err
