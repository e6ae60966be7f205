"""Where drift is shown: in what `neoteny diagnose` says and draws, in the report and in archives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from made_up import write_planned
from neoteny.cli import main
from neoteny.experiments.plan import PlannedRun
from neoteny.measuring.diagnose import describe, draw, drift_of
from neoteny.plasticity.drift import age_ranges, late_curve, middle_ages, named
from neoteny.report.about import About
from neoteny.report.archive import POINTS, read_archive, read_history
from neoteny.report.gather import gather
from neoteny.report.scores import read_runs
from neoteny.settings.config import ReplayConfig, TrainConfig

MEANS, FAR = 1.0 + np.arange(16) ** 2, np.arange(16) / 16


def write_run(folder: Path, seed: int = 1, factor: float = 1.0, replay: str = "swd") -> Path:
    """A made-up run whose drift is the same at every measurement."""
    config = TrainConfig("Hopper-v5", replay=ReplayConfig(replay), total_timesteps=20_000, seed=seed, threads=1)
    return write_planned(folder, PlannedRun(replay, config), 100.0, named(20_000, factor * MEANS, FAR))


def test_the_late_curve_is_the_median_of_the_last_quarter() -> None:
    lines = [named(1_000 + 100 * i, (i + 1) * MEANS, FAR) for i in range(12)]
    curve = late_curve({name: [line[name] for line in lines] for name in lines[0]})
    assert curve is not None
    assert curve.num_stored == 2_100
    np.testing.assert_allclose(curve.means, 11 * MEANS)
    np.testing.assert_allclose(curve.far, FAR)
    np.testing.assert_array_equal(curve.ages, middle_ages(2_100))
    lines[-1]["drift/03"] = None  # type: ignore[assignment] # not finite, as a log has it
    curve = late_curve({name: [line[name] for line in lines] for name in lines[0]})
    assert curve is not None
    assert curve.means[3] == 10 * MEANS[3]  # of the 9th, 10th and 11th measurement
    for wrong in (1e308, -1e308):
        lines[-1]["drift/03"] = lines[-2]["drift/03"] = wrong
        curve = late_curve({name: [line[name] for line in lines] for name in lines[0]})
        assert curve is not None
        assert np.isfinite(curve.means).all()
    assert late_curve({**{name: [line[name] for line in lines] for name in lines[0]}, "drift_stored": [1e99]}) is None
    assert late_curve({}) is None
    assert late_curve({name: [None] for name in lines[0]}) is None


def test_diagnose_has_a_table_and_a_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    run = write_run(tmp_path)
    said = describe(run).splitlines()
    (head,) = (index for index, line in enumerate(said) if line.split() == ["age", "drift", "far", "off"])
    rows = [line.split() for line in said[head + 1 : head + 17]]
    bounds = age_ranges(20_000)
    assert [row[0] for row in rows] == [f"{low + 1:,}" for low in bounds[:-1]]
    assert [row[2] for row in rows] == [f"{high:,}" for high in bounds[1:]]
    assert [float(row[3]) for row in rows] == [float(f"{mean:.3g}") for mean in MEANS]
    assert [row[4] for row in rows] == [f"{far:.0%}" for far in FAR]
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: drawn.append(figure))
    draw([run], tmp_path / "p.png")
    (panel,) = (panel for panel in drawn[0].axes if panel.get_title() == "drift, last quarter")
    np.testing.assert_allclose(panel.lines[0].get_ydata(), MEANS)
    np.testing.assert_allclose(panel.lines[0].get_xdata(), middle_ages(20_000))
    assert panel.get_xscale() == "log"


def test_the_report_has_a_curve_for_each_method(tmp_path: Path) -> None:
    for seed, factor in ((1, 1.0), (2, 3.0)):
        write_run(tmp_path, seed, factor)
    write_run(tmp_path, 1, 10.0, "uniform")
    report = gather(read_runs([tmp_path]), About())
    (section,) = (section for section in report.sections if section.name == "drift")
    (panel,) = section.panels
    uniform, swd = panel.curves  # type: ignore[union-attr]
    assert (uniform.method, uniform.runs, swd.method, swd.runs) == ("td3-uniform", "1 run", "td3-swd", "2 runs")
    np.testing.assert_allclose(uniform.mean, 10 * MEANS)
    np.testing.assert_allclose(swd.mean, 2 * MEANS)
    np.testing.assert_allclose(swd.high - swd.mean, np.sqrt(2) * MEANS)
    np.testing.assert_allclose(swd.x, middle_ages(20_000))
    assert panel.log  # type: ignore[union-attr]
    assert [s.name for s in report.sections if s.name.startswith("plasticity")] == ["plasticity-Hopper-v5-critics"]
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report")]) == 0
    assert (tmp_path / "report" / "figures" / "drift.png").read_bytes().startswith(b"\x89PNG")
    figures = json.loads(
        (tmp_path / "report" / "index.html").read_text().split('id="figures">')[1].split("</script>")[0]
    )
    assert sum(figure["layout"]["xaxis"].get("type") == "log" for figure in figures) == 1


def test_an_archive_keeps_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    lines = run.joinpath("metrics.jsonl").read_text().splitlines()
    more = [json.dumps({"step": 20_000, **named(20_000, MEANS, FAR)}) for _ in range(3 * POINTS)]
    run.joinpath("metrics.jsonl").write_text("\n".join([*lines, *more]) + "\n")
    before = read_history(run)
    assert len(before.series["drift/07"][1]) <= POINTS
    from neoteny.report.archive import write_archive

    archive = tmp_path / "archive" / run.parts[-3] / run.parts[-2] / f"{run.name}.jsonl"
    write_archive(archive, "/".join(run.parts[-3:]), before, {})
    curve = late_curve({name: values for name, (_, values) in read_archive(archive).series.items()})
    assert curve is not None
    np.testing.assert_allclose(curve.means, MEANS, rtol=1e-4)
    assert curve.num_stored == 20_000
    assert drift_of(run) is not None
