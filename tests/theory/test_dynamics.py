"""The fresh term under every law, the kernel, saddles, and the command that reports them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neoteny.cli import main
from neoteny.commands import theory as command
from neoteny.theory import dynamics, replays
from neoteny.theory.gradient import LAWS, Law, fresh_term, gain, random_problem
from neoteny.theory.kernel import fresh_full_rank, kernel_ranks
from neoteny.theory.population import exponent
from neoteny.theory.saddle import network_saddles, quadratic_saddles, slope

KS = [int(k) for k in np.geomspace(1_000, 30_000, 6)]


def powers(name: str, part: str, problems: int = 30) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    terms = [fresh_term(rng, random_problem(rng), LAWS[name], KS) for _ in range(problems)]
    return exponent(KS, np.stack([getattr(term, part) for term in terms]))


def test_the_fresh_term_falls_as_one_over_k() -> None:
    assert powers("uniform", "measured")[0] == pytest.approx(-1, abs=0.005)
    assert powers("uniform", "turned")[0] == pytest.approx(-1, abs=0.02)


def test_its_mean_under_an_unchanged_policy_falls_faster() -> None:
    mean, half = powers("uniform", "mean", 60)
    assert mean == pytest.approx(-1.5, abs=0.12)
    assert mean + half < -1.2  # not 1/k


@pytest.mark.parametrize("name", LAWS)
def test_the_closed_form_is_what_is_measured(name: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        term = fresh_term(rng, random_problem(rng), LAWS[name], [20, 300, 401, 2_000])
        np.testing.assert_allclose(term.measured, term.single, rtol=1e-9)
        if name == "uniform":
            assert (term.rest < 1e-9 * term.single).all()
        elif name != "uniform, N 400":
            assert term.rest[-1] > 1e-3 * term.single[-1]


def test_a_bounded_buffer_is_not_one_over_k() -> None:
    """The paper's 1/k assumes no eviction: with capacity N the share stays at 1/N."""
    bounded = LAWS["uniform, N 400"]
    assert [bounded.share(k) for k in (100, 400, 4_000, 10**6)] == [1 / 100, 1 / 400, 1 / 400, 1 / 400]
    rng = np.random.default_rng(2)
    term = fresh_term(rng, random_problem(rng), bounded, [4_000])
    printed = replace(bounded, capacity=10**9).share(4_000) / bounded.share(4_000) * term.single
    assert abs(printed / term.measured - 1) > 0.5


def test_swd_changes_the_constant_and_not_the_rate() -> None:
    swd = LAWS["SWD, w_min 0.1"]
    assert gain(swd, 10**9) == pytest.approx(10 * (1 - 1 / 400), rel=1e-3)
    assert max(gain(swd, 10**e) for e in range(10)) < 10
    far = [10**7, 10**8, 10**9]
    assert exponent(far, np.array([swd.share(k) for k in far]))[0] == pytest.approx(-1, abs=1e-3)
    assert LAWS["SWD, w_min 0"].share(10**9) == pytest.approx(2 / 400, rel=1e-2)
    assert gain(LAWS["SWA"], 10**9) == pytest.approx(0.1 + 1 / 400, rel=1e-3)


def test_saddles_are_left_after_a_logarithm() -> None:
    rng = np.random.default_rng(3)
    quadratic, network = quadratic_saddles(rng, 500), network_saddles(rng, 500)
    for escapes in (quadratic, network):
        assert (escapes.steps > 0).all()
        assert (np.abs(escapes.steps - escapes.predicted) < 2).all()
    assert slope(network.unstable, network.steps)[0] == pytest.approx(1 / np.log1p(0.05), rel=0.01)
    assert slope(quadratic.whole, quadratic.steps)[1] < 0.05  # the whole gradient's size says nothing
    assert slope(quadratic.unstable, quadratic.steps)[1] > 0.5
    assert np.corrcoef(1 / network.unstable, network.steps)[0, 1] ** 2 < 0.6  # not proportional to 1 / gradient


def test_fresh_kernels_are_of_full_rank_if_wide() -> None:
    rng = np.random.default_rng(4)
    assert fresh_full_rank(rng, 20, (64, 64)) == 1
    assert fresh_full_rank(rng, 20, (1,)) == 0  # 11 parameters, 24 cells
    assert 0 < fresh_full_rank(rng, 50, (3, 3)) < 1  # parameters enough, but a ReLU is dead where it matters


def test_kernels_of_a_short_run() -> None:
    ranks = kernel_ranks(np.random.default_rng(5), iterations=3, draws=4)
    assert ranks.warm.shape == (3,)
    assert ranks.fresh.shape == (4,)
    assert (ranks.warm > 1).all()
    assert ranks.fresh_full == 1


@pytest.mark.slow
def test_every_statement_of_dynamics_holds_on_other_seeds() -> None:
    for check in (dynamics.saddle_time, replays.schedules):
        assert check(np.random.default_rng(99)).held
    for soft in (False, True):
        assert dynamics.theorem_3(np.random.default_rng(99), each=3, soft=soft).held
        assert dynamics.theorem_3_drift(np.random.default_rng(99), each=3, soft=soft).held
        assert dynamics.theorem_3_conditions(np.random.default_rng(99), problems=5, soft=soft).held
        assert dynamics.fresh_decay(np.random.default_rng(99), soft=soft).held
    assert dynamics.raw_norm(np.random.default_rng(99), problems=2, iterations=170).held is None
    for name in replays.CLAIMS:
        assert replays.fresh_under(np.random.default_rng(99), name, problems=5).held


def test_the_command_has_every_theorem_with_and_without_entropy() -> None:
    """On as few problems as it takes: only the names are looked at."""
    small = {"theorem_1": 10, "theorem_2": 10, "theorem_3": 1}
    names = set()
    for check in command.CHECKS:
        wanted = getattr(check, "func", check)
        if wanted.__name__ in small:
            names.add(check(np.random.default_rng(0), small[wanted.__name__]).name)  # type: ignore[call-arg]
    assert names == {f"Theorem {number}{form}" for number in (1, 2, 3) for form in ("", " (entropy)")}


def test_a_wrong_closed_form_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share that counts the newest age as 0, as if the clock moved before the add."""
    monkeypatch.setattr(Law, "share", lambda law, k: law.schedule.fresh_share(min(k, law.capacity)) * 400 / 399)
    assert replays.fresh_under(np.random.default_rng(0), "SWD, w_min 0.1", problems=2).held is False


def test_the_table_has_a_row_for_each() -> None:
    finding = dynamics.saddle_time(np.random.default_rng(0), problems=50)
    shown = command.table([finding, replace(finding, name="Other", held=False, printed="")])
    assert shown.splitlines()[0].split() == "statement what it says measured problems held".split()
    assert "100       yes" in shown
    assert "NO" in shown
    assert command.markdown([finding]).count("\n") == 3


def test_without_matplotlib_it_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["theory", "--out", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == (
        "neoteny theory: drawing needs matplotlib, which is not installed: "
        "pip install '.[report]' in a clone of Neoteny\n"
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_the_command_twice_finds_the_same(tmp_path: Path) -> None:
    """In processes of their own; everything holds, and every file is the same to the byte."""
    for name in ("one", "two"):
        run = [sys.executable, "-m", "neoteny", "theory", "--out", str(tmp_path / name)]
        shown = subprocess.run(run, capture_output=True, text=True, check=True).stdout
        assert shown.count(" yes\n") == len(command.CHECKS) - 1
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["bound.png", "choosing.png", "findings.json", "gradient.png", "kernel.png", "table.md"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    findings = json.loads((tmp_path / "one" / "findings.json").read_text())
    assert len(findings) == len(command.CHECKS)
    assert {finding["held"] for finding in findings if finding["name"] != "Raw norm"} == {True}
