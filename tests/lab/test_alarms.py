"""The experiment on false alarms and misses: how it counts, and the whole of it at a tiny scale, twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neoteny.lab.alarms import SCALES, TASKS, observed, planned
from neoteny.lab.tables import Case, case_of, counted_alarms, is_damaged, markdown, table
from neoteny.measuring.alarms import read
from neoteny.plasticity.verdict import RULES, Alarms, Observation
from patience import HANG

GAP, RANK = RULES[0], next(rule for rule in RULES if rule.relative)


def case(kind: str, seed: int, alarm: bool, returned: float | None = None) -> Case:
    return Case(kind, "Pendulum-v1", seed, {GAP.measure: 2.0 if alarm else 0.5}, {GAP.measure: alarm}, returned)


CASES = [
    case("healthy", 1, False, 100.0),
    case("healthy", 2, True, 80.0),
    case("primed", 1, True, 79.0),  # below both healthy ones: damaged
    case("primed", 2, False, 90.0),  # above one of them: it recovered
    case("dormant", 1, True),
    case("dormant", 2, False),
]


def test_false_alarms_and_misses_by_hand() -> None:
    assert [is_damaged(one, CASES) for one in CASES] == [False, False, True, False, True, True]
    assert counted_alarms(GAP, CASES) == Alarms(GAP.measure, GAP.bound, 2, 1, 3, 1)
    unmeasured = [*CASES, Case("dormant", "Pendulum-v1", 3, {}, {}, None)]
    assert counted_alarms(GAP, unmeasured) == counted_alarms(GAP, CASES)


def test_any_network_beyond_its_bound_is_an_alarm() -> None:
    by_network = {
        "actor": [Observation(RANK, 10.0, 5.0, False, None)],
        "critics": [Observation(RANK, 40.0, 2.0, True, 7), Observation(GAP, 1.0, 0.3, False, None)],
    }
    made = case_of("primed", "Hopper-v5", 3, by_network, 12.0)
    assert made.late == {RANK.measure: 0.05, GAP.measure: 0.3}  # relative to the first, the one nearest to alarm
    assert made.alarms == {RANK.measure: True, GAP.measure: False}


def test_the_table_is_read_back_and_a_quick_one_decides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "alarms.json"
    for decides in (True, False):
        rows = table(CASES, decides, "neoteny lab alarms")
        path.write_text(json.dumps(rows))
        assert read(path).get(GAP.measure) == (counted_alarms(GAP, CASES) if decides else None)
        page = markdown(CASES, rows)
        assert ("At this scale it decides nothing." in page) is not decides
        assert "| fresh_twin_gap | above 1.25 | 1 of 2 | 0 of 1 | 1 of 2 |" in page
        assert "| Pendulum-v1 | primed | 2 | 90.0 | no | none |" in page


def test_the_plan_is_what_the_page_says() -> None:
    runs = planned(SCALES["full"], "full").runs
    assert len(runs) == 30
    assert len({run.directory for run in runs}) == 30
    assert {run.config.env for run in runs} == set(TASKS)
    assert {run.config.total_timesteps for run in runs} == {300_000}
    assert sorted(run.config.priming_updates for run in runs) == [0] * 15 + [100_000] * 15
    assert {run.config.seed for run in runs} == {1, 2, 3, 4, 5}
    assert SCALES["full"].decides
    assert not SCALES["quick"].decides


def test_what_was_measured_after_silencing_is_judged_by_its_first_and_its_last() -> None:
    (gap, rank) = observed({"critics": {GAP.measure: [0.9, 3.0], RANK.measure: [40.0, 2.0]}})["critics"]
    assert (gap.outside, gap.late) == (True, 3.0)
    assert (rank.outside, rank.first, rank.late) == (True, 40.0, 2.0)


TINY = """
import sys
from neoteny.agents.configs import TD3Config
from neoteny.cli import main
from neoteny.lab import alarms
alarms.TASKS = {"Pendulum-v1": TD3Config((16, 16), batch_size=16, learning_starts=100)}
alarms.SCALES["quick"] = alarms.Scale(700, 200, 1, 100, 300, 200, decides=False)
alarms.SETTLING = 20
sys.exit(main(["lab", "alarms", "--scale", "quick", "--out", sys.argv[1], "--jobs", "1"]))
"""


def run_tiny(out: Path) -> str:
    """Run the command in a process of its own, since its runs have one thread; return what it printed."""
    command = [sys.executable, "-c", TINY, str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG).stdout


@pytest.mark.slow
def test_the_whole_of_it(tmp_path: Path) -> None:
    said = run_tiny(tmp_path)
    assert "it decides nothing" in said
    rows = json.loads((tmp_path / "alarms.json").read_text())
    assert [one["kind"] for one in rows["cases"]] == ["healthy", "dormant", "primed"]
    assert all(set(one["late"]) == {rule.measure for rule in RULES} for one in rows["cases"])
    assert np.isfinite([value for one in rows["cases"] for value in one["late"].values()]).all()
    healthy, dormant, _ = rows["cases"]
    assert dormant["late"]["dormant_0.1"] > 0.7 > healthy["late"]["dormant_0.1"]
    assert (tmp_path / "alarms.md").read_text() in said
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.suffix in (".npz", ".jsonl")}
    files |= {path: path.stat().st_mtime_ns for path in (tmp_path / "dormant").iterdir()}
    run_tiny(tmp_path)  # nothing is trained or measured again
    assert all(path.stat().st_mtime_ns == then for path, then in files.items())
    assert json.loads((tmp_path / "alarms.json").read_text()) == rows
