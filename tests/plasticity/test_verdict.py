"""What `neoteny diagnose` says of runs: observations with their range, and nothing where returns are rising."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neoteny.cli import main
from neoteny.measuring.diagnose import describe, draw
from neoteny.plasticity.verdict import RULES, judge, rising

HEALTHY = {
    "trainability": 0.8,
    "grama_inactive": 0.1,
    "dormant_0.1": 0.15,
    "effective_rank": 15.0,
    "ntk_effective_rank": 40.0,
    "gradient_l2": 5.0,
    "fresh_gradient_share": 0.05,
    "churn": 2.0,
}
DORMANT = {"trainability": [1, 1, 1, 3, 1, 7, 8, 9], "churn": [1, 1, 1, 1, 1, 0.001, 0.001, 0]}
FLAT = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0]


def write_run(directory: Path, returns: list[float], count: int = 8, **series: list[float]) -> Path:
    """A run of nothing but measurements and returns."""
    directory.mkdir(parents=True)
    lines: list[dict[str, Any]] = []
    for index in range(count):
        values = {name: series.get(name, [value] * 8)[index] for name, value in HEALTHY.items()}
        lines.append({"step": 1_000 * (index + 1), **{f"probe/critics/{name}": v for name, v in values.items()}})
    lines += [{"step": 1_000 * (index + 1), "eval_return": value} for index, value in enumerate(returns)]
    (directory / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return directory


def test_every_measure_is_in_the_table(tmp_path: Path) -> None:
    said = describe(write_run(tmp_path / "run", FLAT))
    assert all(name in said for name in HEALTHY)
    assert {rule.measure for rule in RULES} == set(HEALTHY)
    assert "The critics stayed within what short runs that learned well showed." in said


def test_what_stands_out_is_an_observation(tmp_path: Path) -> None:
    said = describe(write_run(tmp_path / "run", FLAT, **DORMANT))
    assert (
        "The critics left what short runs that learned well showed: trainability 8.5 (above 5 from step 6,000), "
        "churn 0.0005 (below 0.01 x first from step 6,000).\nThe returns are not rising. These bounds are from runs"
    ) in said
    assert "  outside   trainability" in said
    assert "lost" not in said.lower()


def test_there_is_no_alarm_where_returns_are_rising(tmp_path: Path) -> None:
    said = describe(write_run(tmp_path / "run", [100.0, 300.0, 250.0, 800.0, 700.0, 900.0], **DORMANT))
    assert "The returns are rising, so no measure is marked." in said
    assert "Other usual causes" not in said
    assert "outside" not in said
    assert "left what" not in said


def test_too_few_returns_are_said(tmp_path: Path) -> None:
    assert "There are too few returns to tell if they rise." in describe(write_run(tmp_path / "run", [1.0], **DORMANT))


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ([1.0, 2.0], None),
        ([1.0, 2.0, 3.0], True),
        ([3.0, 2.0, 1.0], False),
        ([1.0, 5.0, 3.0], False),  # it was better in the middle
        ([5.0, 1.0, 3.0], False),  # it was better at first
        ([1.0, 1.0, 1.0], False),
        ([-900.0, -800.0, -200.0, -250.0, -150.0, -140.0], True),
        (FLAT, False),
        ([0.0, 0.0, 0.0, 0.0, 50.0, 50.0, 50.0, 150.0, 10.0, 5.0], False),  # it rose, and collapsed
    ],
)
def test_the_rule_for_rising_returns(returns: list[float], expected: bool | None) -> None:
    assert rising(returns) is expected


def test_returns_that_only_vary_pass_it_one_time_in_four() -> None:
    drawn = np.random.default_rng(0).normal(size=(3_000, 12))
    assert np.mean([bool(rising(list(row))) for row in drawn]) == pytest.approx(1 / 4, abs=0.04)


def test_a_directory_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    write_run(runs / "Hopper-v5" / "one", FLAT)
    write_run(runs / "Hopper-v5" / "two", FLAT, **DORMANT)
    write_run(runs / "short", FLAT, count=1)
    picture = tmp_path / "p.png"
    assert main(["diagnose", str(runs), "--picture", str(picture)]) == 0
    said = capsys.readouterr()
    assert f"{runs / 'Hopper-v5' / 'one'}: plasticity" in said.out
    assert f"{runs / 'Hopper-v5' / 'two'}: plasticity" in said.out
    assert f"Left out: {runs / 'short'} has 1 measurement of plasticity and at least 2 are needed" in said.err
    assert picture.stat().st_size > 10_000
    assert main(["diagnose", str(runs / "short"), "--picture", str(picture)]) == 2
    assert "short has 1 measurement of plasticity and at least 2 are needed" in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    for path in (tmp_path / "none", tmp_path / "nowhere"):
        assert main(["diagnose", str(path)]) == 2
        assert f"{path} is not a run, nor is a run inside it" in capsys.readouterr().err


def test_the_picture_has_a_panel_for_each_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: drawn.append(figure))
    draw([write_run(tmp_path / "run", FLAT)], tmp_path / "p.png")
    titles = [panel.get_title() for panel in drawn[0].axes if panel.axison]
    assert titles == [rule.measure for rule in RULES]


def test_missing_values_are_passed_over() -> None:
    rule = RULES[0]
    assert judge(rule, [1, 2], [None, 1.0]) is None
    found = judge(rule, [1, 2, 3, 4], [None, 1.0, 9.0, 9.0])
    assert found is not None
    assert found.outside
    assert found.since == 3
