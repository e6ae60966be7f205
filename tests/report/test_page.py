"""The report: what it writes, the page in a real browser, and `neoteny claims`."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from browser import opened
from made_up import write_planned, write_run, write_runs
from neoteny.cli import main
from neoteny.experiments.plan import load_plan


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two replays on two tasks, of which a method has a seed more on one."""
    folder = tmp_path_factory.mktemp("made")
    write_run(write_runs(folder / "runs"), "Hopper-v5", "swd", 6, 2_500.0)
    write_run(folder / "runs", "Hopper-v5", "swd", 7, 2_500.0, done=False)
    assert main(["report", str(folder / "runs"), "--out", str(folder / "report")]) == 0
    return folder / "report"


def test_the_verdict_in_words_comes_first(report: Path) -> None:
    text = re.sub(r"<[^>]+>", " ", (report / "index.html").read_text().split("</main>")[0].split("<main>")[1])
    words = " ".join(text.split())
    assert words.startswith("Verdicts td3-swd against td3-uniform better +")
    assert "95% interval +" in words
    assert "11 and 10 runs, on 2 tasks, 5 to 6 seeds on each" in words
    assert "paper" not in words  # these runs have nothing to do with it
    assert "No fixed scale is known for Reacher-v5" in words
    assert "Not finished: 1 of 22 runs" in words
    assert "td3-swd has unequal numbers of runs (Hopper-v5 6, Reacher-v5 5)" in words


def test_figures_and_tables(report: Path) -> None:
    names = {path.stem for path in (report / "figures").iterdir()}
    sections = {"differences", "curves", "aggregates", "profiles", "improvement", "runtime", "ages"}
    assert names == sections | {"plasticity-Hopper-v5-critics", "plasticity-Reacher-v5-critics"}
    for name in names:
        assert (report / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (report / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        svg = (report / "figures" / f"{name}.svg").read_text()
        assert "Runs without a plan." in svg  # what the runs were for is on every figure
    with (report / "tables" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["task"], row["method"], row["runs"]) for row in rows] == [
        ("Hopper-v5", "td3-uniform", "5"),
        ("Hopper-v5", "td3-swd", "6"),
        ("Reacher-v5", "td3-uniform", "5"),
        ("Reacher-v5", "td3-swd", "5"),
    ]
    tex = (report / "tables" / "verdicts.tex").read_text()
    assert tex.startswith("\\begin{tabular}{llrrrrrrrrrl}")
    assert (report / "tables" / "aggregates.csv").read_text().count("IQM") == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(report: Path, scheme: str) -> None:
    """Curves render, a legend entry hides its curve and its band, nothing is asked for, nothing complains."""
    from playwright.sync_api import expect

    with opened(report / "index.html", scheme=scheme) as tab:
        plot = tab.locator("#curves .plot").first
        assert plot.locator(".scatterlayer path.js-line").count() == 2 * 2
        assert "(6 to 7 runs)" not in plot.inner_text()
        assert "td3-swd (7 runs)" in plot.inner_text()
        plot.locator(".legendtoggle").nth(1).click()
        expect(plot.locator(".scatterlayer path.js-line")).to_have_count(2)
        folded = tab.locator("details").first  # the second task's plasticity
        assert folded.locator(".main-svg").count() == 0
        folded.locator("summary").click()
        expect(folded.locator(".scatterlayer path.js-line").first).to_be_visible()
        assert tab.asked == [(report / "index.html").resolve().as_uri()]
        assert tab.complaints == []


def test_on_a_phone_nothing_is_wider_than_the_screen(report: Path) -> None:
    with opened(report / "index.html", width=390, height=844) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert tab.locator("#curves .plot").first.bounding_box()["width"] > 300


def test_the_page_may_load_nothing(report: Path) -> None:
    page = (report / "index.html").read_text()
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=\"(?!data:)", page)


def test_names_in_the_page_are_text(tmp_path: Path) -> None:
    """Whatever a method or a task is called."""
    path = tmp_path / "odd.csv"
    lines = [
        f"{name},</script><b>,{seed},{step},{seed}" for name in ("<i>&", "x") for seed in (1, 2) for step in (1, 2)
    ]
    path.write_text("\n".join(["method,task,seed,step,return", *lines]))
    assert main(["report", str(path), "--out", str(tmp_path / "out")]) == 0
    with opened(tmp_path / "out" / "index.html") as tab:
        assert tab.locator("main i, main b").count() == 0
        assert tab.complaints == []


def test_claims_show_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of fig2 at laptop scale all runs, made up; of the quick scale of a plan never a verdict."""
    plan = load_plan("swd/fig2", "laptop")
    for run in plan.runs:
        better = 1.3 if "swd" in run.method else 1.0
        write_planned(tmp_path, run, 1_000 * better * (1 + 0.01 * run.config.seed))
    assert main(["claims", "--out", str(tmp_path), "--archives", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"reproduced, laptop scale: swd against uniform, \+[23]\d\.\d% \(95% interval", said)
    assert "reproduced, laptop scale: swd, T scaled against uniform" in said
    assert not re.search(r"\w+, full scale: \w+ against", said)
    words = ["report", str(tmp_path), "--plan", "swd/fig2", "--scale", "laptop", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    reduced = "laptop scale. Reduced: Hopper-v5, HalfCheetah-v5 instead of 5 tasks, learning starts 10,000 instead of"
    assert page.count(reduced) >= page.count("<figure>") > 8  # on every figure
    assert "SWD &gt; uniform on all five tasks" in page
    assert (tmp_path / "out" / "tables" / "verdicts.csv").read_text().count("reproduced") == 4
    for run in load_plan("lab/minatar", "quick").runs:
        write_planned(tmp_path / "quick", run, 1_000.0 * (1 + ("swd" in run.method)))
    assert main(["claims", "--out", str(tmp_path / "quick"), "--archives", str(tmp_path / "none")]) == 0
    said = capsys.readouterr().out
    assert "no verdict, quick scale: swd against uniform, mean of all evaluations" in said
    assert not re.search(r"(better|worse|undecided), quick scale", said)
