"""``neoteny diagnose``."""

from __future__ import annotations

import sys
from pathlib import Path

from neoteny.arguments import Parser
from neoteny.commands import COMMANDS
from neoteny.errors import missing_extra


def main(argv: list[str]) -> int:
    """Run ``neoteny diagnose``."""
    parser = Parser(prog="neoteny diagnose", description=COMMANDS["diagnose"])
    parser.add_argument("runs", type=Path, nargs="+", help="runs, or directories with runs inside")
    parser.add_argument("--picture", type=Path, default=Path("plasticity.png"), help="where to draw (plasticity.png)")
    options = parser.parse_args(argv)
    from neoteny.measuring.diagnose import describe, draw, measured

    runs, left_out = measured(options.runs)
    for run in runs:
        print(describe(run), end="\n\n")
    for reason in left_out:
        print(f"Left out: {reason}", file=sys.stderr)
    try:
        draw(runs, options.picture)
    except ImportError as error:
        raise missing_extra("the picture", "report", error) from error
    print(f"Wrote {options.picture}")
    return 0
