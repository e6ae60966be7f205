"""The command line: one word chooses a command, and only what that command needs is loaded."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from neoteny import __version__
from neoteny.errors import Interrupted, RunStopped, UsageError, missing_extra


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["--version"], ["-V"]):
        print(f"neoteny {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in COMMANDS:
            try:
                return COMMANDS[name](words[length:])
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
    known = ", ".join(COMMANDS)
    print(f"neoteny: there is no command {' '.join(words[:2])!r}; the commands are: {known}", file=sys.stderr)
    return 2


def train(argv: list[str]) -> int:
    """train an agent: neoteny train td3|sac|ddqn --env ID [--replay swd] ..."""
    from neoteny.agents.configs import AGENTS, PRESETS

    agent = {"dqn": "ddqn"}.get(argv[0], argv[0]) if argv else ""
    if agent not in AGENTS:
        raise UsageError(f"name an agent first, one of {', '.join(AGENTS)}: neoteny train td3 --env Hopper-v5")
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--out", type=Path)
    own.add_argument("--preset", default="swd-paper")
    own.add_argument("--intervention", action="append", default=[])
    given, rest = own.parse_known_args(argv[1:])
    if given.preset not in PRESETS[agent]:
        raise UsageError(f"{agent} has the presets {', '.join(PRESETS[agent])}, got {given.preset!r}")
    try:
        import tyro
    except ImportError as error:
        raise missing_extra("training", "train", error) from error

    from neoteny.training.config import TrainConfig, limit_threads

    rest += ["--intervention", *given.intervention] if given.intervention else []
    words = ["--total-timesteps" + word[7:] if word.split("=")[0] == "--steps" else word for word in rest]
    config = tyro.cli(
        TrainConfig,
        prog=f"neoteny train {agent}",
        description=f"Train {agent}. Besides: --out DIR, the run's directory; --preset, one of "
        f"{', '.join(PRESETS[agent])}; --steps, short for --total-timesteps.",
        default=TrainConfig(env=tyro.MISSING, agent=PRESETS[agent][given.preset]),
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
        args=words,
    )
    if not any(word.split("=")[0] == "--total-timesteps" for word in words):
        config = replace(config, total_timesteps=0)  # the paper's, now that the environment is known
    limit_threads(config)
    try:
        from neoteny.training.start import train as run_training
    except ImportError as error:
        raise missing_extra("training", "train", error) from error
    directory = run_training(config, out=given.out)
    _print_done(directory)
    return 0


def resume(argv: list[str]) -> int:
    """go on with a run from its last checkpoint, to the same result as if it had never stopped"""
    parser = argparse.ArgumentParser(prog="neoteny resume", description=resume.__doc__)
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
    parser = argparse.ArgumentParser(prog="neoteny evaluate", description=evaluate.__doc__)
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--episodes", type=int, default=10, help="how many episodes (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the episodes (0)")
    parser.add_argument("--video", action="store_true", help="also write a video of one more episode into the run")
    options = parser.parse_args(argv)
    if options.video:
        os.environ.setdefault("MUJOCO_GL", "egl")  # before anything that renders is imported
    from neoteny.training.replaying import evaluate_run, film

    returns = evaluate_run(options.run, options.episodes, options.seed)
    mean = sum(returns) / len(returns)
    print(f"{len(returns)} episodes: mean return {mean:.2f}, from {min(returns):.2f} to {max(returns):.2f}")
    if options.video:
        print(f"Wrote {film(options.run, options.seed)}")
    return 0


def inspect(argv: list[str]) -> int:
    """say what a run is and how far it got, with a digest of each part of its state"""
    parser = argparse.ArgumentParser(prog="neoteny inspect", description=inspect.__doc__)
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(argv)
    from neoteny.training.inspect import describe, facts_of

    facts = facts_of(options.run)
    print(json.dumps(facts, indent=2) if options.json else describe(facts))
    return 0


def diagnose(argv: list[str]) -> int:
    """show how plasticity moved over a run, and which measures left what runs that learn well show"""
    parser = argparse.ArgumentParser(prog="neoteny diagnose", description=diagnose.__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="runs, or directories with runs inside")
    parser.add_argument("--picture", type=Path, default=Path("plasticity.png"), help="where to draw (plasticity.png)")
    options = parser.parse_args(argv)
    from neoteny.training.diagnose import describe, draw, measured

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


def claims(argv: list[str]) -> int:
    """every claim of the paper, and what is known of it here so far"""
    parser = argparse.ArgumentParser(prog="neoteny claims", description=claims.__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where the runs are (runs)")
    options = parser.parse_args(argv)
    from neoteny.experiments.claims import describe

    print(describe(options.out))
    return 0


def list_all(argv: list[str]) -> int:
    """the agents, replays, interventions, measures and environments"""
    argparse.ArgumentParser(prog="neoteny list", description=list_all.__doc__).parse_args(argv)
    from neoteny.experiments.catalogue import describe

    print(describe())
    return 0


def theory(argv: list[str]) -> int:
    """check every statement of the paper's theory in numbers: a table and plots, in minutes"""
    from neoteny.theory.command import main as run_theory

    return run_theory(argv)


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
    "claims": claims,
    "list": list_all,
    "theory": theory,
    **{f"bench {name}": _bench(name, about) for name, about in BENCHMARKS.items()},
}


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {command.__doc__}" for name, command in COMMANDS.items())
    return f"usage: neoteny COMMAND [--help] ...\n\nKeeps reinforcement-learning agents able to learn.\n\n{commands}"
