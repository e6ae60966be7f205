"""Replayed regression: its stream beside a slow twin, every law beside least squares, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neoteny.cli import main
from neoteny.lab.regression.experiment import MOMENTS, Outcome, Scale, arms, findings, run, streams
from neoteny.lab.regression.learning import Arm, Network, begin, fresh_gap, learn, newest_share
from neoteny.lab.regression.stream import INPUTS, SLOW, Draws, Stream, draw, examples_of
from neoteny.replay.ages.schedules import LinearDecay, Uniform, Window
from neoteny.replay.sampling import AgeWeightedSampler

EVERY = 7


def target_by_hand(draws: Draws, bits: np.ndarray) -> float:
    """The threshold network unit by unit, in whole numbers."""
    weights, biases, outgoing = (np.asarray(part).astype(int).tolist() for part in draws.target)
    total = 0
    for unit in range(100):
        own = [row[unit] for row in weights]
        reached = biases[unit] + sum(weight for weight, bit in zip(own, bits, strict=True) if bit)
        negative = [*own, biases[unit]].count(-1)
        total += outgoing[unit] * (10 * reached > 7 * 21 - 10 * negative)
    return total


@pytest.mark.parametrize("world", ["drifting", "stationary"])
def test_the_stream_beside_a_slow_twin(world: str) -> None:
    draws = draw(jax.random.key(3), 40, EVERY)
    stream = examples_of(draws, world, EVERY)  # type: ignore[arg-type]
    slow, flips, quick = np.array(draws.first), list(np.asarray(draws.flips)), np.asarray(draws.quick)
    assert len(flips) == 5  # 40 examples are five stretches of 7 and one of 5
    expected = []
    for number in range(40):
        if number and number % EVERY == 0:
            slow[flips[number // EVERY - 1]] ^= 1
        expected.append(np.r_[slow, quick[number, SLOW:]] if world == "drifting" else quick[number])
    np.testing.assert_array_equal(stream.inputs, expected)
    by_hand = np.array([target_by_hand(draws, bits) for bits in expected])
    scale = np.polyfit(by_hand, np.asarray(stream.targets), 1)
    np.testing.assert_allclose(np.polyval(scale, by_hand), stream.targets, atol=1e-5)
    assert scale[0] > 0


def test_the_target_has_variance_1_over_random_inputs_and_every_bit_is_drawn() -> None:
    stream = streams("stationary", Scale(20_000, 3))
    np.testing.assert_allclose(stream.targets.mean(axis=1), 0, atol=0.08)
    np.testing.assert_allclose(stream.targets.var(axis=1), 1, atol=0.08)
    np.testing.assert_allclose(stream.inputs.mean(axis=1), 0.5, atol=0.03)
    drifting = streams("drifting", Scale(20_000, 3))
    changed = (np.diff(np.asarray(drifting.inputs).astype(int), axis=1) != 0).sum(axis=1)
    np.testing.assert_array_equal(changed[:, :SLOW].sum(axis=1), 99)  # one flip between two stretches
    assert (changed[:, SLOW:] > 9_000).all()


def linear_stream(count: int, noise: float) -> Stream:
    """Targets that are linear in the bits, with noise that no input explains."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (count, INPUTS)).astype(np.uint8)
    slopes = np.linspace(-1, 1, INPUTS)
    return Stream(jnp.asarray(bits), jnp.asarray(bits @ slopes + 0.5 + noise * rng.normal(size=count), jnp.float32))


@pytest.mark.slow
def test_a_linear_network_finds_least_squares_under_every_law() -> None:
    count = 12_000
    stream, network = linear_stream(count, 0.1), Network(())
    design = np.c_[np.asarray(stream.inputs), np.ones(count)]
    solution = np.linalg.lstsq(design, np.asarray(stream.targets), rcond=None)[0]
    for arm in arms(count).values():
        fit, errors = jax.jit(learn(network, arm, count))(
            begin(network, jax.random.key(0), INPUTS), stream, 0, jax.random.key(1)
        )
        found = np.r_[
            np.ravel(fit.params["head"]["out"]["dense"]["kernel"]), fit.params["head"]["out"]["dense"]["bias"]
        ]
        np.testing.assert_allclose(found, solution, atol=0.03)
        assert errors[-1_000:].mean() == pytest.approx(0.01, rel=0.25)  # the noise's variance


def test_the_error_of_an_example_is_taken_before_it_is_stored() -> None:
    """The first target is a million, all others 0: only what was learned from it can be wrong afterwards."""
    stream = Stream(jnp.zeros((5, INPUTS), jnp.uint8), jnp.array([1e6, 0, 0, 0, 0]))
    network = Network(())
    start = begin(network, jax.random.key(0), INPUTS)
    bias = float(start.params["head"]["out"]["dense"]["bias"][0])
    _, errors = learn(network, Arm(Uniform(), 5), 5)(start, stream, jnp.int32(0), jax.random.key(0))
    assert errors[0] == pytest.approx((1e6 - bias) ** 2)
    assert errors[1] == pytest.approx((bias + 1e-3) ** 2, rel=1e-2)  # one step of Adam towards the first


def test_what_is_drawn_is_what_a_buffer_would_contain() -> None:
    """Targets are the examples' numbers, and the network's loss has gradients that name what was drawn."""
    count, stored, held = 1_000, 600, 100
    stream = Stream(jnp.zeros((count, INPUTS), jnp.uint8), jnp.arange(count, dtype=jnp.float32))
    network = Network(())
    params = jax.tree.map(jnp.zeros_like, begin(network, jax.random.key(0), INPUTS).params)
    for schedule in (Uniform(), LinearDecay(50, 0.1), Window(20)):
        share = newest_share(network, Arm(schedule, held), 10)(params, stream, jnp.int32(stored), jax.random.key(2))
        law = AgeWeightedSampler(schedule).probabilities(held)  # position 0 is the newest, number 599
        norms = 2.0 * (stored - 1 - np.arange(held))  # of the bias alone, as all bits are 0
        expected = (law[:10] * norms[:10]).sum() / (law * norms).sum()
        assert float(share) == pytest.approx(expected, rel=0.05)


@pytest.mark.slow
def test_the_gap_is_1_for_a_new_network_and_large_for_one_that_cannot_learn() -> None:
    stream, network, arm = linear_stream(2_000, 0.0), Network((16,)), Arm(Uniform(), 2_000)
    gap = jax.jit(fresh_gap(network, arm, 1_000))
    new = begin(network, jax.random.key(5), INPUTS).params
    assert float(gap(new, stream, 2_000, jax.random.key(0))) == pytest.approx(1, abs=0.6)
    dead = jax.tree.map(lambda leaf: leaf, new)
    dead["trunk"]["layer_0"]["dense"]["bias"] = jnp.full(16, -100.0)
    assert float(gap(dead, stream, 2_000, jax.random.key(0))) > 3


def test_controls_have_the_mean_age_of_swd() -> None:
    by_name = arms(100_000)
    ages = [
        by_name[name].schedule.describe(capacity=by_name[name].capacity).mean_age
        for name in ("swd", "uniform, equal age", "truncated geometric, equal age")
    ]
    np.testing.assert_allclose(ages, ages[0], rtol=1e-3)


def outcome(error: float, early: float, late: float) -> Outcome:
    wiggle = 1 + 0.01 * np.arange(5)[:, None]
    gaps = np.full((1, len(MOMENTS)), early)
    gaps[:, -1] = late
    return Outcome(error * wiggle * np.ones((1, 100)), gaps * wiggle, 0.1 * wiggle / np.array(MOMENTS), np.ones(7))


def test_verdicts_are_of_less_error_and_of_a_gap_that_grows() -> None:
    both = {("drifting", "swd"): outcome(0.5, 1.0, 1.0), ("drifting", "uniform"): outcome(1.0, 1.0, 2.0)}
    found = {(one.claim.method, one.claim.measure): one for one in findings(both)}  # type: ignore[arg-type]
    assert found["swd", "drifting/online error"].outcome == "better"
    assert found["swd", "drifting/online error"].test.gain == pytest.approx(0.5)  # type: ignore[union-attr]
    assert found["swd", "drifting/fresh gap at the end"].outcome == "better"
    assert found["uniform at the end", "drifting/fresh gap"].outcome == "worse"
    assert found["swd at the end", "drifting/fresh gap"].outcome == "undecided"
    assert both["drifting", "swd"].slope == pytest.approx(-1)


@pytest.mark.slow
def test_seeds_do_not_depend_on_each_other() -> None:
    one, two = (
        run(streams("drifting", scale), arms(1_000)["swd"], scale) for scale in (Scale(1_000, 1), Scale(1_000, 2))
    )
    np.testing.assert_allclose(one.errors[0], two.errors[0], rtol=1e-4)
    assert not np.allclose(two.errors[0], two.errors[1])


@pytest.mark.slow
def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [
        "lab",
        "regression",
        "--scale",
        "quick",
        "--examples",
        "1000",
        "--seeds",
        "1",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main([*words, "--arm", "uniform", "--arm", "swd"]) == 0
    printed = capsys.readouterr().out
    assert "This scale decides nothing" in printed
    assert "against" not in printed  # no verdict
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "regression.md",
        "regression.json",
        "regression.png",
    }
    saved = json.loads((tmp_path / "out" / "regression.json").read_text())
    assert [(one["world"], one["arm"]) for one in saved["outcomes"]] == [
        (world, arm) for world in ("drifting", "stationary") for arm in ("uniform", "swd")
    ]
    assert np.isfinite(saved["outcomes"][0]["error"]).all()
    for wrong, message in (
        (["--examples", "1050"], "--examples must be a multiple of 100 and >= 1000, got 1050"),
        (["--seeds", "0"], "--seeds must be >= 1, got 0"),
        (["--arm", "swdd"], "--arm must be one of uniform; uniform, equal age;"),
    ):
        assert main([*words, *wrong]) == 2
        assert message in capsys.readouterr().err
