"""The benchmarks that time our own training run from beginning to end, and say what they measured."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from neoteny.bench import growth
from neoteny.cli import main


@pytest.mark.slow
def test_bench_start_tells_seconds_programs_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "start", "--rounds", "1", "--held", "50000"]) == 0
    told = capsys.readouterr().out
    first, warm, slowest = map(float, re.search(r"first start (.*); then (.*) \(the slowest (.*)\)", told).groups())
    assert 0 < warm == slowest
    assert first > 0
    assert "programs compiled: {'act': 1, 'update': 1, 'evaluation': 0}" in told
    empty, full = map(
        float, re.search(r"(\S+) GB resident with an empty replay, (\S+) GB with 50,000 held", told).groups()
    )
    assert full - empty > 50_000 * (2 * 348 + 17) * 4 / 1e9, "what is held must have been written"


@pytest.mark.slow
def test_bench_growth_times_each_case(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    agent = replace(growth.AGENT, learning_starts=20)
    monkeypatch.setattr(growth, "KINDS", {"width": [("8", replace(agent, widths=(8,)), 1_000), ("16", agent, 500)]})
    assert main(["bench", "growth", "--rounds", "1"]) == 0
    times = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()[-2:]]
    assert min(times) > 0


@pytest.mark.slow
def test_bench_remedies_times_each_beside_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "remedies", "--remedy", "redo", "--rounds", "2", "--steps", "5"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("redo"))
    _, _, middle, low, high = line.split()
    assert 0 < float(low) <= float(middle) <= float(high)


@pytest.mark.parametrize(
    "words",
    [["start", "--rounds", "0"], ["start", "--held", "0"], ["growth", "--rounds", "0"], ["remedies", "--steps", "0"]],
)
def test_what_cannot_be_timed_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert "must be >= 1, got 0" in capsys.readouterr().err
