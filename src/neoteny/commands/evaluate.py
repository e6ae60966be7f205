"""``neoteny evaluate``."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from neoteny.arguments import Parser
from neoteny.commands import COMMANDS


def main(argv: list[str]) -> int:
    """Run ``neoteny evaluate``."""
    parser = Parser(prog="neoteny evaluate", description=COMMANDS["evaluate"])
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--env", metavar="ID", help="where to play, instead of the run's own environment")
    parser.add_argument("--episodes", type=int, default=10, help="how many episodes (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the episodes (0)")
    parser.add_argument("--video", action="store_true", help="also write a video of one more episode into the run")
    parser.add_argument("--best", action="store_true", help="the policy of the best evaluation, not the last")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(argv)
    from neoteny.runs import policy_file
    from neoteny.training.evaluation import evaluate

    if not options.best and (said := policy_file.caution(options.run)):
        print(f"neoteny evaluate: {said}", file=sys.stderr)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*before policies had a checksum")  # said above
        found = evaluate(
            options.run,
            env=options.env,
            episodes=options.episodes,
            seed=options.seed,
            video=options.video,
            best=options.best,
        )
    print(json.dumps({"run": str(options.run), **found.to_json()}, indent=2) if options.json else found)
    return 0
