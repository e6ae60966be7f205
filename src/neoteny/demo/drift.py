"""``neoteny demo``: TD3 with uniform and with age-weighted replay, in a world that changes every few thousand steps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from neoteny.agents.configs import TD3Config
from neoteny.arguments import Parser
from neoteny.demo.world import ID, PERIOD
from neoteny.errors import Interrupted, UsageError, missing_extra
from neoteny.experiments.cores import usable_cores
from neoteny.experiments.plan import Plan, PlannedRun
from neoteny.experiments.sweep import sweep
from neoteny.replay.registry import make_sampler
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig

STEPS = 24_000
REPLAYS = {"uniform": "#8a8a8a", "swd": "#0b5fa5"}

CAPTION = """\
Pendulum whose gravity changes every {period:,} steps (dashed lines); TD3, {seeds} seeds each (thin) and their mean.
Age-weighted replay (T a tenth of the run, as in the paper) replays the new world more often; where its line is above,
it relearns sooner: replaying old data holds learning back when the world changes. This does not show that plasticity
is lost, nor what happens on a task that stays the same."""


def main(argv: list[str]) -> int:
    """Run both over a few seeds, one run on each core, draw what happened and write its report."""
    parser = Parser(prog="neoteny demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="the directory to write (demo)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps of each run ({STEPS:,})")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each replay (3)")
    options = parser.parse_args(argv)
    if options.steps < 2 * PERIOD:
        raise UsageError(f"--steps must be >= {2 * PERIOD}, so that the world changes, got {options.steps}")
    if options.seeds < 1:
        raise UsageError(f"--seeds must be >= 1, got {options.seeds}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("the demo's picture", "report", error) from error
    if options.out.exists() and any(options.out.iterdir()) and not (options.out / "demo-runs").exists():
        raise UsageError(f"{options.out} contains something that is no demo: name another directory with --out")
    plan, folder = plan_of(options.steps, options.seeds), options.out / "demo-runs"
    runs = {(run.method, run.config.seed): folder / run.directory for run in plan.runs}
    print(f"TD3 on a pendulum whose gravity changes every {PERIOD:,} steps: uniform and age-weighted replay.")
    print(f"{len(runs)} runs, one on each core; about two minutes on two. Each is a directory like any other.")
    train_all(plan, folder)
    figure = Figure(figsize=(11, 9.5), layout="constrained")
    draw(figure, runs, options.steps)
    caption = CAPTION.format(period=PERIOD, seeds=options.seeds)
    figure.supxlabel(caption, fontsize=9, x=0.02, ha="left")
    picture = options.out / "demo.png"
    figure.savefig(picture, dpi=110)
    print("\nMean return after the first change, each seed:")
    for replay in REPLAYS:
        means = [_after_first_change(run) for (name, _), run in runs.items() if name == replay]
        print(f"  {replay:<8}" + "".join(f"{mean:9.1f}" for mean in means))
    page = report(runs, options.out, options.steps, options.seeds)
    print(f"\n{caption}\n\nWrote {picture} and {page}. A real task: neoteny train td3 --env Hopper-v5 --replay swd")
    return 0


def report(runs: dict[tuple[str, int], Path], out: Path, steps: int, seeds: int) -> Path:
    """The page of these runs, as `neoteny report` makes it."""
    from neoteny.report.about import About
    from neoteny.report.gather import gather
    from neoteny.report.scores import read_runs
    from neoteny.report.write import write_report

    plural = "s" * (seeds > 1)
    note = (
        f"A demonstration: a pendulum, {steps:,} steps, {seeds} seed{plural}, gravity changed every {PERIOD:,} steps."
    )
    records = read_runs([], {run: replay for (replay, _), run in runs.items()})
    try:
        return write_report(gather(records, About("TD3 in a world that changes", note=note)), out / "report")
    except ImportError as error:
        raise missing_extra("the demo's page", "report", error) from error


def plan_of(steps: int, seeds: int) -> Plan:
    """The runs of the demo: both replays, over some seeds."""
    runs = [
        PlannedRun(
            replay,
            TrainConfig(
                ID,
                TD3Config(widths=(64, 64), actor_lr=1e-3, learning_starts=1_000),
                ReplayConfig(replay, decay_steps=None if replay == "uniform" else steps / 10),
                PlasticityConfig(probe_every=0),
                total_timesteps=steps,
                seed=seed,
                eval_every=0,
                log_every=250,
                checkpoint_every=0,
                threads=1,
            ),
        )
        for seed in range(1, seeds + 1)
        for replay in REPLAYS
    ]
    return Plan("demo", "TD3 in a world that changes", "full", "", "", tuple(runs))


def read_column(run: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The steps at which a metric was logged, and its values."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps, values = np.array([(line["step"], line[name]) for line in lines if name in line]).T
    return steps, values


def draw(figure: Any, runs: dict[tuple[str, int], Path], steps: int) -> None:
    """Returns, sampled age and the share of the present world's data in a batch, with the changes marked."""
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=[2, 1, 1])
    for replay, colour in REPLAYS.items():
        curves, ages = [], []
        for (name, _), run in runs.items():
            if name == replay:
                at, values = read_column(run, "episode_return")
                curves.append(np.convolve(values, np.ones(5) / 5, "valid"))
                age_at, age = read_column(run, "age_mean")
                ages.append(age)
                top.plot(at[4:], curves[-1], color=colour, linewidth=0.8, alpha=0.5)
        top.plot(at[4:], np.mean(curves, axis=0), color=colour, linewidth=2.6, label=f"{replay} replay")
        middle.plot(age_at, np.mean(ages, axis=0), color=colour, linewidth=2)
        bottom.plot(*fresh_share(replay, steps), color=colour, linewidth=2)
    for panel in (top, middle, bottom):
        for change in range(PERIOD, steps, PERIOD):
            panel.axvline(change, color="black", linestyle="--", linewidth=0.8, alpha=0.6)
        panel.grid(alpha=0.25)
    top.set(title="An agent whose world changes", ylabel="return, mean of 5 episodes")
    top.legend(loc="lower right")
    middle.set(ylabel="mean age of\nwhat is replayed")
    bottom.set(ylabel="share of a batch from\nthe present world", xlabel="step", ylim=(0, 1.02))


def fresh_share(replay: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """How much of a batch comes from after the last change, by the exact law."""
    sampler: Any = make_sampler(replay, "exact", steps / 10, {})
    at = np.arange(250, steps + 1, 250)
    shares = [float(sampler.probabilities(int(n))[: (n - 1) % PERIOD + 1].sum()) for n in at]
    return at, np.array(shares)


def train_all(plan: Plan, out: Path) -> None:
    """Every run in a process of its own, as many at a time as there are cores."""
    for run in plan.runs:
        shutil.rmtree(out / run.directory, ignore_errors=True)  # of the demo before this one
    outcome = sweep(plan, out, usable_cores())
    if outcome.signal is not None:
        raise Interrupted("Stopped; the demo begins anew next time.", outcome.signal)
    for name, reason in outcome.failed.items():
        raise UsageError(f"{name} failed: {reason}")


def _after_first_change(run: Path) -> float:
    steps, values = read_column(run, "episode_return")
    return float(values[steps > PERIOD].mean())
