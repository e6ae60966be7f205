"""The command line: one word chooses a command, and only what that command needs is loaded."""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

from neoteny import __version__
from neoteny.arguments import Parser
from neoteny.errors import Interrupted, RunStopped, UsageError, missing_extra
from neoteny.wording import did_you_mean


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    if "" not in sys.path:  # the current directory, for schedules and environments of the user's own
        sys.path.append("")
    words = [_ALSO.get(words[0], words[0]), *words[1:]] if words else ["help"]
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in COMMANDS:
            return _run(name, words[length:])
    print(f"neoteny: {_unknown(words[0])}", file=sys.stderr)
    return 2


def _run(name: str, argv: list[str]) -> int:
    try:
        return COMMANDS[name](argv)
    except UsageError as error:
        print(f"neoteny {name}: {error}", file=sys.stderr)
        return 2
    except RunStopped as error:
        print(f"neoteny {name}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"neoteny {name}: {error.strerror}: {error.filename}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"\n{error}", file=sys.stderr)
        return error.status


def train(argv: list[str]) -> int:
    """train an agent: neoteny train td3|sac|ddqn --env ID [--replay swd] ..."""
    from neoteny.agents.configs import AGENTS

    if argv[:1] in (["-h"], ["--help"]):
        print(TRAIN_HELP)
        return 0
    agent = {"dqn": "ddqn"}.get(argv[0], argv[0]) if argv else ""
    if agent not in AGENTS:
        raise UsageError(
            f"name an agent first, one of {', '.join(AGENTS)}: neoteny train td3 --env Hopper-v5"
            + did_you_mean(agent, AGENTS)
        )
    try:
        from neoteny.settings.options import parse
    except ImportError as error:
        raise missing_extra("training", "train", error) from error
    options = parse(agent, argv[1:])

    from neoteny.settings.config import limit_threads

    limit_threads(options.config)
    try:
        from neoteny.training.start import train as run_training
    except ImportError as error:
        raise missing_extra("training", "train", error) from error
    _print_done(run_training(options.config, out=options.out, overwrite=options.overwrite))
    return 0


TRAIN_HELP = """usage: neoteny train AGENT --env ID [--replay swd] [--steps 1M] [--out DIR] ...

Train an agent:

  td3   for continuous actions
  sac   for continuous actions
  ddqn  for discrete actions, from vectors or from pixels

neoteny train td3 --help lists every flag of an agent, with its default; neoteny list names the replays, the
interventions and the environments. For example: neoteny train td3 --env Hopper-v5 --replay swd"""


def resume(argv: list[str]) -> int:
    """go on with a run from its last checkpoint, to the same result as if it had never stopped"""
    parser = Parser(prog="neoteny resume", description=resume.__doc__)
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--steps", type=int, help="a new number of steps in all, larger than before")
    parser.add_argument("--on-nan", choices=("halt", "skip"), help="instead of the run's own --on-nan")
    parser.add_argument(
        "--allow-version-change",
        action="store_true",
        help="go on with other versions of the libraries than it began with",
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
        allow_version_change=options.allow_version_change,
    )
    _print_done(directory)
    return 0


def _print_done(directory: Path) -> None:
    print(f"\nDone: {directory}\n  neoteny inspect {directory}\n  neoteny evaluate {directory}")


def evaluate(argv: list[str]) -> int:
    """evaluate a run's policy over whole episodes, with a video if asked for"""
    parser = Parser(prog="neoteny evaluate", description=evaluate.__doc__)
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


def inspect(argv: list[str]) -> int:
    """say what a run is and how far it got, with a digest of each part of its state"""
    parser = Parser(prog="neoteny inspect", description=inspect.__doc__)
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(argv)
    from neoteny.runs.inspect import describe, facts_of

    facts = facts_of(options.run)
    print(json.dumps(facts, indent=2) if options.json else describe(facts))
    return 0


def diagnose(argv: list[str]) -> int:
    """show how plasticity moved over a run, and which measures left what runs that learn well show"""
    parser = Parser(prog="neoteny diagnose", description=diagnose.__doc__)
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


def demo(argv: list[str]) -> int:
    """watch TD3 with uniform and age-weighted replay in a world that changes: two minutes, and a picture"""
    from neoteny.demo.drift import main as run_demo

    return run_demo(argv)


def demo_laws(argv: list[str]) -> int:
    """draw from a wrapped buffer under every schedule, and make a picture of it"""
    from neoteny.demo.laws import main as run_demo

    return run_demo(argv)


def sweep(argv: list[str]) -> int:
    """carry out a plan of many runs, one on each core or on a Ray cluster: neoteny sweep PLAN"""
    from neoteny.experiments.command import main as run_sweep

    return run_sweep("sweep", argv)


def reproduce(argv: list[str]) -> int:
    """carry out the plan of one of the paper's claims: neoteny reproduce swd/fig2 [--scale laptop]"""
    from neoteny.experiments.command import main as run_sweep

    return run_sweep("reproduce", argv)


def report(argv: list[str]) -> int:
    """a page with a verdict in words, figures and tables: neoteny report DIR... [--plan swd/fig2 --scale laptop]"""
    from neoteny.experiments.reporting import main as run_report

    return run_report(argv)


def archive(argv: list[str]) -> int:
    """turn finished runs into small text files that belong in git: neoteny archive RUNS --out results/NAME"""
    from neoteny.experiments.archiving import main as run_archive

    return run_archive(argv)


def claims(argv: list[str]) -> int:
    """every claim of the paper, and what is known of it here so far"""
    from neoteny.experiments.claims import main as run_claims

    return run_claims(argv)


def list_all(argv: list[str]) -> int:
    """the agents, replays, interventions, measures and environments"""
    Parser(prog="neoteny list", description=list_all.__doc__).parse_args(argv)
    from neoteny.experiments.catalogue import describe

    print(describe())
    return 0


def theory(argv: list[str]) -> int:
    """check every statement of the paper's theory in numbers: a table and plots, in minutes"""
    from neoteny.theory.command import main as run_theory

    return run_theory(argv)


def bench(argv: list[str]) -> int:
    """list the benchmarks"""
    if argv and argv[0] not in ("-h", "--help"):
        known = did_you_mean(argv[0], BENCHMARKS) or f"; the benchmarks are: {', '.join(BENCHMARKS)}"
        raise UsageError(f"there is no benchmark {argv[0]!r}{known}")
    print("usage: neoteny bench NAME [--help] ...\n\n" + _table(BENCHMARKS))
    return 0


def version(argv: list[str]) -> int:
    """print the version"""
    Parser(prog="neoteny version", description=version.__doc__).parse_args(argv)
    print(f"neoteny {__version__}")
    return 0


def show_help(argv: list[str]) -> int:
    """this text, or a command's own: neoteny help train"""
    for length in (2, 1):
        if (name := " ".join(argv[:length])) in COMMANDS and name != "help":
            return COMMANDS[name](["--help"])
    if argv and argv[0] != "help":
        raise UsageError(_unknown(argv[0]))
    print("usage: neoteny COMMAND [--help] ...\n\nKeeps reinforcement-learning agents able to learn.\n")
    print(_table({name: command.__doc__ or "" for name, command in COMMANDS.items()}))
    return 0


def _bench(name: str, about: str) -> Callable[[list[str]], int]:
    """A benchmark, which is the module of its name."""

    def run(argv: list[str]) -> int:
        benchmark: Callable[[list[str]], int] = importlib.import_module(f"neoteny.bench.{name}").main
        return benchmark(argv)

    run.__doc__ = about
    return run


BENCHMARKS = {
    "train": "steps a second beside Stable-Baselines3 and SBX, and where a step's time goes",
    "start": "seconds from the command to the first update, and the memory of a full replay",
    "growth": "how a step's time grows with the replay, the batch, the updates and the network",
    "replay": "what a draw and a sample cost, beside uniform replay",
    "checkpoint": "what a checkpoint costs, in seconds of pause and bytes on disk",
    "probes": "what measuring plasticity adds to training time",
    "sweep": "steps a second of a sweep on every core, over one run alone",
    "integrations": "what sampling by age costs inside other frameworks, over their uniform sampling",
}

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "demo": demo,
    "demo laws": demo_laws,
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "inspect": inspect,
    "diagnose": diagnose,
    "sweep": sweep,
    "reproduce": reproduce,
    "report": report,
    "archive": archive,
    "claims": claims,
    "list": list_all,
    "theory": theory,
    "bench": bench,
    **{f"bench {name}": _bench(name, about) for name, about in BENCHMARKS.items()},
    "help": show_help,
    "version": version,
}


_ALSO = {"-h": "help", "--help": "help", "-V": "version", "--version": "version"}


def _table(about: dict[str, str]) -> str:
    width = max(map(len, about))
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in about.items())


def _unknown(name: str) -> str:
    return f"there is no command {name!r}" + (
        did_you_mean(name, COMMANDS) or f"; the commands are: {', '.join(COMMANDS)}"
    )
