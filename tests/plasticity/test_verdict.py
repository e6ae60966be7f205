"""What `neoteny diagnose` says of runs: numbers, and a verdict only by a measure that is seldom wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.measuring.alarms import committed, read
from neoteny.measuring.diagnose import describe, draw
from neoteny.plasticity.verdict import RULES, Alarms, judge, rising, values_of

HEALTHY = {
    "fresh_twin_gap": 0.4,
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
    lines.sort(key=lambda line: line["step"])  # as a run writes them
    (directory / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return directory


def test_every_measure_is_in_the_table(tmp_path: Path) -> None:
    said = describe(write_run(tmp_path / "run", FLAT))
    assert all(name in said for name in HEALTHY)
    assert {rule.measure for rule in RULES} == set(HEALTHY)


def row(measure: str, bound: float, false_alarms: int, misses: int = 2) -> dict[str, Alarms]:
    """A table with one measure."""
    return {measure: Alarms(measure, bound, 20, false_alarms, 10, misses)}


def test_without_a_table_nothing_is_judged(tmp_path: Path) -> None:
    said = describe(write_run(tmp_path / "run", FLAT, **DORMANT), table={})
    assert "Nothing is judged: until there is a table of false alarms and misses" in said
    assert "  beyond" not in said
    assert "lost" not in said


def test_a_measure_that_is_seldom_wrong_says_lost(tmp_path: Path) -> None:
    said = describe(write_run(tmp_path / "run", FLAT, **DORMANT), table=row("trainability", 5.0, 1))
    assert "  beyond    trainability" in said
    assert (
        "The returns are not rising.\nThe critics lost plasticity by trainability 8.5 (above 5 from step 6,000), which "
        "called 1 of 20 healthy runs lost and missed 2 of 10 damaged ones."
    ) in said
    healthy = describe(write_run(tmp_path / "healthy", FLAT), table=row("trainability", 5.0, 1))
    assert "The critics is within the bound of every measure that may call a run lost: trainability." in healthy


@pytest.mark.parametrize(
    "table",
    [
        row("trainability", 5.0, 2),  # wrong on 1 healthy run in 10
        row("trainability", 4.0, 0),  # at another bound
        row("trainability", 5.0, 0, misses=10),  # it finds no damaged run
        {"trainability": Alarms("trainability", 5.0, 0, 0, 10, 0)},  # no healthy run was looked at
    ],
    ids=["often wrong", "another bound", "finds none", "no healthy run"],
)
def test_a_measure_that_may_not_judge_does_not(table: dict[str, Alarms], tmp_path: Path) -> None:
    said = describe(write_run(tmp_path / "run", FLAT, **DORMANT), table=table)
    assert "plasticity by" not in said
    assert "  beyond" not in said
    assert "Nothing is judged: every measure calls more than 1 in 20 healthy runs lost" in said


def test_a_run_whose_returns_rise_is_never_lost(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [100.0, 300.0, 250.0, 800.0, 700.0, 900.0], **DORMANT)
    said = describe(run, table=row("trainability", 5.0, 0))
    assert "The returns are rising: the run is not lost." in said
    assert "plasticity by" not in said
    assert "Other usual causes" not in said
    assert "  beyond" not in said


def test_too_few_returns_are_said(tmp_path: Path) -> None:
    assert "There are too few returns to tell if they rise." in describe(write_run(tmp_path / "run", [1.0], **DORMANT))


def with_values(run: Path, q_max: float | None, target_abs: float | None) -> Path:
    told = [
        {"step": 9_000 + i, "q_max": q_max, "target_abs": target_abs, "episode_return": 90.0, "episode_length": 200}
        for i in range(4)
    ]
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\n" + "\n".join(map(json.dumps, told)))
    return run


def test_values_that_diverge_are_told_from_lost_plasticity(tmp_path: Path) -> None:
    table = row("trainability", 5.0, 0)
    said = describe(with_values(write_run(tmp_path / "run", FLAT, **DORMANT), 5e6, 3e6), table=table)
    assert (
        "The values diverge, which is not by itself lost plasticity: over the last quarter the largest |Q| of a batch "
        "is 5e+06 and the mean |target| 3e+06, and the largest return of an episode 102 in size, which allows values "
        "up to 102.\nWhile values diverge the measures are not judged."
    ) in said
    assert "plasticity by" not in said
    said = describe(with_values(write_run(tmp_path / "fine", FLAT, **DORMANT), 120.0, 80.0), table=table)
    assert "The values do not diverge: over the last quarter the largest |Q| of a batch is 120 and" in said
    assert "The critics lost plasticity by trainability" in said
    assert "The values diverge" in describe(with_values(write_run(tmp_path / "nan", FLAT), None, None))


def test_what_values_the_returns_allow() -> None:
    """Episodes of 20 steps with reward 1, cut: at a discount of 0.99 a value goes on to 100."""
    known = values_of([90.0, 95.0, 100.0, 99.0], [50.0] * 4, [20.0, 18.0], 20.0, 0.99)
    assert known is not None
    assert known.allowed == pytest.approx(100.0)
    assert not known.diverge
    assert values_of([], [], [1.0], 20.0, 0.99) is None
    far = values_of([90.0, 95.0, 100.0, 1_001.0], [50.0] * 4, [20.0, 18.0], 20.0, 0.99)
    assert far is not None
    assert far.diverge


def test_the_table_in_a_file(tmp_path: Path) -> None:
    counts = {"bound": 1.25, "healthy": 15, "false_alarms": 0, "damaged": 20, "misses": 3, "healthy_late": [0.1, 0.4]}
    table: dict[str, Any] = {"decides": True, "measures": {"fresh_twin_gap": counts}}
    path = tmp_path / "alarms.json"
    path.write_text(json.dumps(table))
    known = read(path)
    assert known == {"fresh_twin_gap": Alarms("fresh_twin_gap", 1.25, 15, 0, 20, 3)}
    assert known["fresh_twin_gap"].may_judge(RULES[0])
    path.write_text(json.dumps({**table, "decides": False}))
    assert read(path) == {}
    path.write_text("{}")
    with pytest.raises(UsageError, match="is not a table of neoteny lab alarms"):
        read(path)
    assert all(name in HEALTHY for name in committed())


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
    finding = judge(rule, [1, 2, 3, 4], [None, 1.0, 9.0, 9.0])
    assert finding is not None
    assert finding.outside
    assert finding.since == 3
