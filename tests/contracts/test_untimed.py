"""No test asserts a time: a busy machine is no defect, and speed is measured by `neoteny bench`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
STOPWATCH = {"perf_counter", "perf_counter_ns", "process_time", "default_timer"}
"""Tests have no use for one; `monotonic` bounds how long they wait for what may hang."""
TIME = re.compile("monotonic|seconds|elapsed|speed|_us$|_ms$")
QUOTIENT = re.compile("^(ratios?|fraction)$")
"""Of times, in tests of benchmarks."""
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def words(tree: ast.AST) -> Iterator[str]:
    """Every name, attribute and string in it."""
    for node in ast.walk(tree):
        word = getattr(node, "id", getattr(node, "attr", getattr(node, "value", None)))
        if isinstance(word, str):
            yield word


def timed(source: str) -> bool:
    """Whether a stopwatch is read, or an assert compares a time by < or > with anything but 0."""
    tree = ast.parse(source)
    named = [TIME, QUOTIENT] if "neoteny.bench" in source else [TIME]
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    for compared in (node for statement in asserts for node in ast.walk(statement) if isinstance(node, ast.Compare)):
        sides = [ast.unparse(side) for side in (compared.left, *compared.comparators)]
        ordered = any(isinstance(sign, ORDER) for sign in compared.ops) and not (len(sides) == 2 and "0" in sides)
        if ordered and any(name.search(word) for word in words(compared) for name in named):
            return True
    return any(isinstance(node, ast.Name | ast.Attribute) and STOPWATCH & {*words(node)} for node in ast.walk(tree))


def test_no_test_asserts_a_time() -> None:
    assert [str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if timed(path.read_text())] == []


@pytest.mark.parametrize(
    ("source", "is_timed"),
    [
        ("start = time.perf_counter(); times = [time.perf_counter() - start]; assert min(times) < 0.3", True),
        ("assert 0 < seconds(work, rounds=2) < 1", True),
        ("assert time.monotonic() < deadline", True),
        ("from neoteny.bench import race; assert all(0.2 < row['ratio'] < 5 for row in rows)", True),
        ("assert all(row['sample_us'] > 0 for row in rows)", False),
        ("assert record.seconds == 5_400", False),
        ("assert found.ratio.max() <= 1", False),
    ],
)
def test_what_is_found(source: str, is_timed: bool) -> None:
    assert timed(source) is is_timed
