"""``neoteny bench``: the benchmarks, each of which is a module of `neoteny.bench`."""

from __future__ import annotations

from neoteny.commands import BENCHMARKS
from neoteny.commands.grouped import run_one


def main(argv: list[str]) -> int:
    """Run the benchmark that the first word names, or list them."""
    return run_one("bench", "benchmark", BENCHMARKS, argv)
