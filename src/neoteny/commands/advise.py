"""``neoteny advise``."""

from __future__ import annotations

from pathlib import Path

from neoteny.arguments import Parser
from neoteny.commands import COMMANDS
from neoteny.errors import UsageError, missing_extra


def main(argv: list[str]) -> int:
    """Run ``neoteny advise``."""
    parser = Parser(prog="neoteny advise", description=COMMANDS["advise"])
    parser.add_argument(
        "replays", type=Path, nargs="+", help="runs, their archives, or replay buffers that Stable-Baselines3 saved"
    )
    parser.add_argument("--out", type=Path, default=Path("advice.png"), help="where to draw (advice.png)")
    parser.add_argument(
        "--trust", action="store_true", help="read saved buffers, which are pickles and can run any code"
    )
    options = parser.parse_args(argv)
    from neoteny.report.advice import advice, draw
    from neoteny.report.situation import situation_of

    situations = [situation_of(path, options.trust) for path in options.replays]
    for situation in situations:
        print(advice(situation), end="\n\n")
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        draw(situations, options.out)
    except ImportError as error:
        raise missing_extra("the picture", "report", error) from error
    except OSError as error:
        raise UsageError(f"{options.out} cannot be written: {error.strerror}") from error
    print(f"Wrote {options.out}")
    return 0
