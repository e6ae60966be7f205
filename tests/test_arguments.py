"""What people type: numbers as they write them, and names that are nearly right."""

from __future__ import annotations

import pytest

from neoteny.arguments import Parser, number, whole_number
from neoteny.errors import UsageError
from neoteny.wording import counted, did_you_mean


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1000", 1_000),
        ("10_000", 10_000),
        ("1e3", 1_000),
        ("1E3", 1_000),
        ("2.5e3", 2_500),
        ("3k", 3_000),
        ("1.5k", 1_500),
        ("1M", 1_000_000),
        ("9007199254740993", 9_007_199_254_740_993),  # no float holds it
        ("0", 0),
        ("-1", -1),
    ],
)
def test_whole_numbers_as_people_write_them(text: str, value: int) -> None:
    parsed = whole_number(text)
    assert (parsed, type(parsed)) == (value, int)


@pytest.mark.parametrize("text", ["1.5", "1e-3", "1.0001k", "three", "nan", "inf", "", "k", "1kk", "1e3000"])
def test_what_is_no_whole_number_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="a whole number is needed, such as 1000, 1_000, 1e3, 3k or 1M, got "):
        whole_number(text)


def test_other_numbers() -> None:
    assert [number(text) for text in ("80k", "1e-3", ".5", "inf", "1_000")] == [80_000.0, 1e-3, 0.5, float("inf"), 1e3]
    with pytest.raises(ValueError, match="a number is needed, such as"):
        number("much")


def test_a_parser_reads_numbers_and_says_what_was_meant() -> None:
    parser = Parser("neoteny fly", None)
    parser.add_argument("--height", type=int)
    assert parser.parse_args(["--height", "3k"]).height == 3_000
    with pytest.raises(UsageError, match=r"there is no argument --hieght; did you mean --height\?"):
        parser.parse_args(["--hieght", "3"])
    with pytest.raises(UsageError, match="argument --height: a whole number is needed"):
        parser.parse_args(["--height", "1.5"])


def test_counts_and_names() -> None:
    assert [counted(n, "episode") for n in (0, 1, 2, 2_000)] == [
        "0 episodes",
        "1 episode",
        "2 episodes",
        "2,000 episodes",
    ]
    assert did_you_mean("SWDD", ["swd", "uniform"]) == "; did you mean swd?"
    assert did_you_mean("nothing", ["swd", "uniform"]) == ""
