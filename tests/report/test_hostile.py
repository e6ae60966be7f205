"""Whatever a report is given to read: names that mean something to a program, and files that are damaged."""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from browser import opened
from neoteny.cli import main
from neoteny.commands.claims import _cell
from neoteny.errors import UsageError
from neoteny.report import figures
from neoteny.report.about import About
from neoteny.report.gather import gather
from neoteny.report.scores import Record, read_runs
from neoteny.report.shapes import Dot, Dots, Section, looks
from neoteny.report.tables import Table, latex
from neoteny.report.write import write_report

HEAD = "method,task,seed,step,return"
NAMES = (
    "<!--<script>",
    "</script><img src=x onerror=alert(1)>",
    "ink",
    "_hidden",
    "&lt;b&gt;<b>%{y}",
    r"$\foo$",
    r"\input{/etc/passwd}~^",
    "[2cm]*",
    "../../outside",
    "名前",
    "x" * 400,
)


def rows(methods: tuple[str, ...], task: str = "Hop", seeds: int = 2) -> str:
    """A CSV of runs of these methods."""
    file = io.StringIO(newline="")
    file.write(f"{HEAD}\n")
    for number, method in enumerate(methods):
        for seed in range(1, seeds + 1):
            for step in (1, 2):
                quoted = method.replace('"', '""')
                file.write(f'"{quoted}","{task}",{seed},{step},{number + seed * step}\n')
    return file.getvalue()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of methods with every kind of name."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "runs.csv").write_text(rows(NAMES, task=r"$\frac{<!--<script>$"), encoding="utf-8")
    assert main(["report", str(folder / "runs.csv"), "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.mark.slow
def test_every_name_is_text_in_a_browser_and_every_figure_is_drawn(report: Path) -> None:
    with opened(report / "index.html") as tab:
        plots = tab.locator("section .plot")
        assert plots.count() >= 6
        assert tab.locator("section .plot .main-svg").count() >= plots.count()
        assert tab.locator("main img, main b, main script").count() == 0
        legend = tab.locator("#curves .plot .legendtext").all_text_contents()
        assert sorted(legend) == sorted(f"{name} (2 runs)" for name in NAMES)
        shown = tab.locator("#differences .plot .yaxislayer-above text").all_text_contents()
        assert any("ink against" in label for label in shown)
        assert tab.complaints == []


@pytest.mark.slow
def test_data_in_a_script_can_neither_end_it_nor_begin_a_comment(report: Path) -> None:
    page = (report / "index.html").read_text()
    data = page.split('<script type="application/json" id="figures">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(data)
    assert "<!--<script> (2 runs)" in json.dumps(json.loads(data)).replace("&lt;", "<").replace("&gt;", ">")


@pytest.mark.slow
def test_a_name_in_a_figure_is_no_mathematics(report: Path) -> None:
    svg = (report / "figures" / "curves.svg").read_text()
    ElementTree.fromstring(svg)  # is whole
    assert r"$\foo$ (2 runs)" in svg
    assert "_hidden (2 runs)" in svg
    assert f"{'x' * 45} ... {'x' * 11} (2 runs)" in svg


def test_latex_prints_every_character() -> None:
    special = "".join(map(chr, range(32, 127)))
    tex = latex(Table("t", "t", ("name", "n"), ((special, 1), ("[x", 2), ("*x\x00\x1b\n\r\u2028y", 3))))
    _, _, head, _, first, second, third, *_ = tex.splitlines()
    assert head == r"name & n \\"
    commands = set(re.findall(r"\\[A-Za-z]+|\\.", first))
    named = {r"\textbackslash", r"\textasciitilde", r"\textasciicircum", r"\textbar"}
    assert commands == {rf"\{character}" for character in "&%_#${}"} | named | {r"\\"}
    back = first.removesuffix(r" & 1 \\")
    for command, character in zip(sorted(named), "^~\\|", strict=True):
        back = back.replace(f"{command}{{}}", f"\0{ord(character)}\0")
    back = re.sub(r"\$([<>])\$|\{([*\[])\}", r"\1\2", back)
    back = re.sub(r"\\([&%_#${}])", r"\1", back)
    back = re.sub("\0(\\d+)\0", lambda match: chr(int(match[1])), back)
    assert back == special
    assert second == r"{[}x & 2 \\"
    assert third == r"{*}x     y & 3 \\"


@pytest.mark.slow
def test_the_tables_of_a_report_are_escaped(report: Path) -> None:
    tex = (report / "tables" / "runs.tex").read_text(encoding="utf-8")
    assert r"\textbackslash{}input\{/etc/passwd\}\textasciitilde{}\textasciicircum{}" in tex
    assert r"\input{" not in tex


def test_a_cell_of_markdown_is_one_cell() -> None:
    assert _cell("a|b\\|c\nd\r\n\u2028e") == r"a\|b\\\|c d e"


def test_names_with_separators_write_nothing_outside_and_share_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FORMATS", ("svg",))
    steps = np.arange(1, 4)
    tasks = ("../../../../outside", "a/b", "a b", "A-b", "..", "/root", "n" * 400)
    series = {"batch/critics/churn": (steps, steps * 1.0), "batch/../churn": (steps, steps * 1.0)}
    records = [Record("m", task, 1, steps, steps * 1.0, series=series) for task in tasks]
    out = tmp_path / "a" / "b" / "c" / "out"
    write_report(gather(records, About("Report")), out)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent for path in written} == {out, out / "figures", out / "tables"}
    assert sum(path.name.startswith("plasticity") for path in written) == 2 * len(tasks)
    assert len({path.name.lower() for path in written}) == len(written)


# Files. What is wrong with each, and what is said.

GOOD = rows(("a", "uniform"))
CSV = {
    "latin-1": (GOOD.replace("a", "é").encode("latin-1"), "line 1 is not UTF-8"),
    "latin-1 further down": (rows(("a", "é")).encode("latin-1"), "line 6 is not UTF-8"),
    "UTF-16": (GOOD.encode("utf-16"), "line 1 is not UTF-8"),
    "UTF-16 without a mark": (GOOD.encode("utf-16-le"), "lacks the columns"),
    "empty": (b"", "lacks the columns method, task, seed, step, return"),
    "a header alone": (f"{HEAD}\n".encode(), "contains no evaluations"),
    "an evaluation twice": (f"{HEAD}\na,b,1,2,3\na,b,1,2,4\n".encode(), "line 3: the evaluation of a on b with seed 1"),
    "a field too many": (f"{HEAD}\na,b,1,2,-1,234.5\n".encode(), "line 2 has more fields than there are columns"),
    "a column twice": (f"{HEAD},return\na,b,1,2,3,4\n".encode(), "has the columns return more than once"),
    "an infinite step": (f"{HEAD}\na,b,1,inf,3\n".encode(), "line 2: the step is 'inf'"),
    "a step that is NaN": (f"{HEAD}\na,b,1,1,1\na,b,1,nan,3\n".encode(), "line 3: the step is 'nan'"),
    "a step below 0": (f"{HEAD}\na,b,1,-1,3\n".encode(), "line 2: the step is '-1'"),
    "half a step": (f"{HEAD}\na,b,1,1.5,3\n".encode(), "line 2: the step is '1.5'"),
    "a step beyond float64": (f"{HEAD}\na,b,1,1e300,3\n".encode(), "line 2: the step is '1e300'"),
    "a huge seed": (f"{HEAD}\na,b,1{'0' * 30},1,3\n".encode(), "line 2: the seed is '10000"),
    "an endless seed": (f"{HEAD}\na,b,{'9' * 9_000},1,3\n".encode(), "of 9,000 characters: it must be a whole number"),
    "no return": (f"{HEAD}\na,b,1,1,\n".encode(), "line 2: the return is '': it must be a number, or nan"),
    "a short line": (f"{HEAD}\na,b,1\n".encode(), "line 2: the step is ''"),
    "a shorter line": (f"{HEAD}\na\n".encode(), "line 2: the task has no name"),
    "a field of 200 kB": (f"{HEAD}\n{'a' * 200_000},b,1,1,1\n".encode(), "line 2 is not CSV: field larger than"),
    "a long return": (f"{HEAD}\na,b,1,1,{'1' * 100}x\n".encode(), "of 101 characters: it must be a number"),
    "a long name": (f"{HEAD}\n{'a' * 501},b,1,1,1\n".encode(), "line 2: the method's name has 501 characters"),
    "no name": (f"{HEAD}\na,,1,1,1\n".encode(), "line 2: the task has no name"),
    "a line break in a name": (f'{HEAD}\n"a\nb",b,1,1,1\n'.encode(), r"line 3: the method 'a\nb' contains characters"),
    "NUL in a name": (f"{HEAD}\na\0,b,1,1,1\n".encode(), r"line 2: the method 'a\x00' contains characters"),
    "an escape in a name": (f"{HEAD}\na,\x1b[2J,1,1,1\n".encode(), r"line 2: the task '\x1b[2J' contains"),
    "U+2028 in a name": (f"{HEAD}\na\u2028,b,1,1,1\n".encode(), r"line 2: the method 'a\u2028' contains"),
    "an open quotation": (f'{HEAD}\na,b,1,1,1\n"a,b,1,1,1\n'.encode(), "line 3 is not CSV: unexpected end of data"),
}


@pytest.mark.parametrize("kind", CSV)
def test_a_csv_that_cannot_be_read_is_refused_in_one_sentence(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, message = CSV[kind]
    path = tmp_path / "theirs.csv"
    path.write_bytes(data)
    assert main(["report", str(path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"neoteny report: {path}")
    assert message in said
    assert said.count("\n") == 1
    assert len(said) < len(str(path)) + 300
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_byte_order_mark_is_no_part_of_the_first_column(newline: str, tmp_path: Path) -> None:
    (tmp_path / "theirs.csv").write_bytes(GOOD.replace("\n", newline).encode("utf-8-sig"))
    assert len(read_runs([tmp_path / "theirs.csv"])) == 4


def test_what_is_no_file(tmp_path: Path) -> None:
    import os

    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    os.mkfifo(tmp_path / "evaluations.npz")
    for name in ("folder.csv", "pipe.csv", "evaluations.npz"):
        with pytest.raises(UsageError, match=rf"{name} is not a file"):
            read_runs([tmp_path / name])


def npz(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **{"timesteps": [1, 2], "results": [[1.0], [2.0]], **arrays})
    return file.getvalue()


def member(data: bytes) -> bytes:
    """An evaluations.npz whose timesteps.npy is `data`."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("timesteps.npy", data)
    return file.getvalue()


class Touch:
    """A file that appears if this is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


NPZ = {
    "empty": (b"", "is not an evaluations.npz"),
    "truncated": (npz()[:-30], "is not an evaluations.npz"),
    "no NumPy file inside": (member(b"hello"), "is not an evaluations.npz"),
    "an empty file inside": (member(b""), "is not an evaluations.npz"),
    "text": (b"hello", "is not an evaluations.npz"),
    "one array": (b"\x93NUMPY" + bytes(100), "is not an evaluations.npz"),
    "more than the file has": (
        member(b"\x93NUMPY\x01\x00\x50\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,)}"),
        "is not an evaluations.npz",
    ),
    "a bomb": (npz(results=np.zeros((2, 10_000_000))), "its results have 160,000,128 bytes, more than 100,000,000"),
    "words": (npz(results=[["a"], ["b"]]), "its results are of type <U1"),
    "complex numbers": (npz(results=[[1j], [2j]]), "its results are of type complex128"),
    "more steps than results": (npz(timesteps=[1, 2, 3]), "timesteps of shape (3,) and results of shape (2, 1)"),
    "no evaluations": (npz(timesteps=[], results=np.zeros((0, 2))), "timesteps of shape (0,)"),
    "no episodes": (npz(results=np.zeros((2, 0))), "results of shape (2, 0)"),
    "numbers alone": (npz(timesteps=3, results=3.0), "timesteps of shape ()"),
    "three dimensions": (npz(results=np.zeros((2, 1, 1))), "results of shape (2, 1, 1)"),
    "an infinite step": (npz(timesteps=[1, np.inf]), "the step is 'inf'"),
    "a step below 0": (npz(timesteps=[-5, 1]), "the step is '-5.0'"),
}


@pytest.mark.parametrize("kind", NPZ)
def test_evaluations_that_cannot_be_read_are_refused_in_one_sentence(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, message = NPZ[kind]
    path = tmp_path / "ppo" / "Hop_1" / "evaluations.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"neoteny report: {path}")
    assert message in said
    assert said.count("\n") == 1


def test_nothing_in_evaluations_is_unpickled(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for data in (
        npz(results=np.array([Touch(trap)], dtype=object)),
        pickle.dumps(Touch(trap)),
        member(pickle.dumps(Touch(trap))),
    ):
        (tmp_path / "evaluations.npz").write_bytes(data)
        with pytest.raises(UsageError, match=r"is not an evaluations\.npz"):
            read_runs([tmp_path / "evaluations.npz"])
    assert not trap.exists()


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\nb", "a\udcff"])
def test_directories_whose_names_cannot_be_printed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / name / "Hop_1"
    folder.mkdir(parents=True)
    (folder / "evaluations.npz").write_bytes(npz())
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert f"the method {name!a} contains characters that cannot be printed" in said
    assert said.removesuffix("\n").isprintable()


# Many at once.

VALUES = (
    "nan",
    "-inf",
    "inf",
    "1e308",
    "-1e99",
    "1e400",
    "-1",
    "0",
    "1.5",
    "",
    "$^{",
    "</script>",
    '"',
    "\0",
    "é",
    "٣",
)


def damaged_csv(rng: np.random.Generator) -> bytes:
    """One to three cells exchanged for others, or bytes changed."""
    if rng.random() < 0.3:
        return damaged(GOOD.encode(), rng)
    lines = [line.split(",") for line in GOOD.splitlines()]
    for _ in range(rng.integers(1, 4)):
        line, column = rng.integers(1, len(lines)), rng.choice(5, p=[0.2, 0.1, 0.1, 0.1, 0.5])
        lines[line][column] = VALUES[rng.integers(len(VALUES))]
    return "\n".join(map(",".join, lines)).encode()


def damaged_npz(rng: np.random.Generator) -> bytes:
    """One or two numbers exchanged for others, or bytes changed."""
    if rng.random() < 0.5:
        return damaged(npz(), rng)
    odd = [np.nan, np.inf, -np.inf, 1e308, -1e99, -1.0, 0.0, 1.5]
    arrays = {"timesteps": np.arange(1.0, 7.0), "results": np.ones((6, 2))}
    for _ in range(rng.integers(1, 3)):
        array = arrays[rng.choice(["timesteps", "results", "results", "results"])]
        array.flat[rng.integers(array.size)] = odd[rng.integers(len(odd))]
    return npz(**arrays)


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """A byte changed, a part left out or written twice, or the end cut off."""
    at, end = sorted(rng.integers(0, len(data), 2).tolist())
    other = bytes([rng.integers(256)])
    return [
        data[:at] + other + data[at + 1 :],
        data[:at] + data[end:],
        data[:end] + data[at:],
        data[:at],
    ][rng.integers(4)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_damaged_gives_a_report_or_one_sentence(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 inputs each; the report is written in full, but for the formats of its figures."""
    monkeypatch.setattr(figures, "FORMATS", ("svg",))
    rng = np.random.default_rng([19, seed])
    seen = set()
    for trial in range(30):
        path = tmp_path / "uniform" / f"Hop_{trial}" / ("theirs.csv" if trial % 2 else "evaluations.npz")
        path.parent.mkdir(parents=True)
        path.write_bytes(damaged_csv(rng) if trial % 2 else damaged_npz(rng))
        status = main(["report", str(path), "--out", str(path.parent / "out")])
        said = capsys.readouterr()
        seen.add((path.suffix, status))
        if status == 0:
            assert f"Wrote {path.parent / 'out' / 'index.html'}" in said.out
            assert not re.search(r"\b(Better|Worse)\b", said.out)  # 2 seeds decide nothing, whatever they returned
            assert not re.search(r"nan%|= nan|inf%", said.out)
        else:
            assert said.err.startswith(f"neoteny report: {path}")
            assert said.err.count("\n") == 1
    assert seen == {(".csv", 0), (".csv", 2), (".npz", 0), (".npz", 2)}


@pytest.mark.slow
def test_a_figure_of_very_many_methods_is_still_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 150 dots an inch it would be higher than the 65,535 pixels that a PNG can be drawn with."""
    monkeypatch.setattr(figures, "FORMATS", ("png",))
    names = [f"method {number}" for number in range(1_500)]
    dots = Dots("", "score", tuple(Dot(name, name, 1.0, 0.5, 1.5) for name in names))
    (path,) = figures.write_figures((Section("many", "Many", "", (dots,)),), looks(names), "", tmp_path)
    width, height = np.frombuffer(path.read_bytes()[16:24], ">u4")
    assert 0 < width < height < 65_536
