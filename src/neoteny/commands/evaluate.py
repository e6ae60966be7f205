"""``neoteny evaluate``."""

from __future__ import annotations

import math
import os
from pathlib import Path

from neoteny.arguments import Parser
from neoteny.commands import COMMANDS
from neoteny.errors import RunStopped


def main(argv: list[str]) -> int:
    """Run ``neoteny evaluate``."""
    parser = Parser(prog="neoteny evaluate", description=COMMANDS["evaluate"])
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--episodes", type=int, default=10, help="how many episodes (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the episodes (0)")
    parser.add_argument("--video", action="store_true", help="also write a video of one more episode into the run")
    options = parser.parse_args(argv)
    if options.video:
        os.environ.setdefault("MUJOCO_GL", "egl")  # before anything that renders is imported
    from neoteny.training.evaluate import described
    from neoteny.training.replaying import evaluate_run, film, start_filming

    if options.video:  # an hour of episodes should not end in an error that could have come first
        start_filming(options.run, options.seed)[0].close()
    returns = evaluate_run(options.run, options.episodes, options.seed)
    if not any(map(math.isfinite, returns)):
        raise RunStopped(described(returns))
    print(described(returns))
    if options.video:
        print(f"Wrote {film(options.run, options.seed)}")
    return 0
