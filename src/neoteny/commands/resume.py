"""``neoteny resume``."""

from __future__ import annotations

from pathlib import Path

from neoteny.arguments import Parser
from neoteny.commands import COMMANDS
from neoteny.commands.done import print_done
from neoteny.errors import missing_extra


def main(argv: list[str]) -> int:
    """Run ``neoteny resume``."""
    parser = Parser(prog="neoteny resume", description=COMMANDS["resume"])
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--steps", type=int, help="a new number of steps in all, larger than before")
    parser.add_argument("--on-nan", choices=("halt", "skip"), help="instead of the run's own --on-nan")
    parser.add_argument("--stop-at-return", type=float, metavar="R", help="instead of the run's own --stop-at-return")
    parser.add_argument(
        "--allow-version-change",
        action="store_true",
        help="go on with other versions of the libraries than it began with",
    )
    parser.add_argument(
        "--new-episodes",
        action="store_true",
        help="begin new episodes, and do not read the saved states of the environments: for an Atari run of a stranger",
    )
    options = parser.parse_args(argv)
    try:
        from neoteny.training.start import resume as go_on
    except ImportError as error:
        raise missing_extra("training", "train", error) from error
    directory = go_on(
        options.run,
        steps=options.steps,
        on_nan=options.on_nan,
        stop_at_return=options.stop_at_return,
        allow_version_change=options.allow_version_change,
        new_episodes=options.new_episodes,
    )
    print_done(directory)
    return 0
