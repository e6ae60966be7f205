"""``neoteny bench``: the benchmarks, each of which is a module of `neoteny.bench`."""

from __future__ import annotations

import importlib

from neoteny.arguments import table
from neoteny.commands import BENCHMARKS
from neoteny.errors import UsageError
from neoteny.wording import did_you_mean


def main(argv: list[str]) -> int:
    """Run the benchmark that the first word names, or list them."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: neoteny bench NAME [--help] ...\n\n" + table(BENCHMARKS))
        return 0
    if argv[0] not in BENCHMARKS:
        known = did_you_mean(argv[0], BENCHMARKS) or f"; the benchmarks are: {', '.join(BENCHMARKS)}"
        raise UsageError(f"there is no benchmark {argv[0]!r}{known}")
    benchmark = importlib.import_module(f"neoteny.bench.{argv[0]}")
    status: int = benchmark.main(argv[1:])
    return status
