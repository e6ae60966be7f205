"""``neoteny diagnose``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from neoteny.arguments import Parser
from neoteny.commands import COMMANDS
from neoteny.errors import missing_extra


def main(argv: list[str]) -> int:
    """Run ``neoteny diagnose``."""
    parser = Parser(prog="neoteny diagnose", description=COMMANDS["diagnose"])
    parser.add_argument("runs", type=Path, nargs="+", help="runs, or directories with runs inside")
    parser.add_argument("--picture", type=Path, default=Path("plasticity.png"), help="where to draw (plasticity.png)")
    parser.add_argument(
        "--fresh-twin",
        action="store_true",
        help="also measure the fresh-twin gap at every checkpoint that the runs have kept, which trains 3 networks for "
        "1,000 updates at each",
    )
    options = parser.parse_args(argv)
    from neoteny.measuring.diagnose import describe, draw, measured, runs_at

    runs = runs_at(options.runs)
    later = _fresh_twins(runs) if options.fresh_twin else {}
    runs, left_out = measured(runs, later)
    for run in runs:
        print(describe(run, later.get(run, [])), end="\n\n")
    for reason in left_out:
        print(f"Left out: {reason}", file=sys.stderr)
    try:
        draw(runs, options.picture, later)
    except ImportError as error:
        raise missing_extra("the picture", "report", error) from error
    print(f"Wrote {options.picture}")
    return 0


def _fresh_twins(runs: Iterable[Path]) -> dict[Path, list[dict[str, Any]]]:
    """The fresh-twin gap at every checkpoint of each run; what cannot be measured is said."""
    try:
        from neoteny.training.afterwards import fresh_twin_gaps
    except ImportError as error:
        raise missing_extra("--fresh-twin", "train", error) from error
    later = {}
    for run in runs:
        later[run], complaints = fresh_twin_gaps(run)
        if not later[run] and not complaints:
            complaints = ["it has no checkpoint with transitions"]
        for complaint in complaints:
            print(f"{run}: {complaint}", file=sys.stderr)
    return later
