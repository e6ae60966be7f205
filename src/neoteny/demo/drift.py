"""``neoteny demo``: TD3 with uniform and with age-weighted replay, in a world that changes every few thousand steps."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from neoteny.arguments import Parser
from neoteny.errors import UsageError, missing_extra
from neoteny.replay.registry import make_sampler

STEPS = 24_000
PERIOD = 6_000
GRAVITIES = (10.0, 15.0, 5.0, 15.0)
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
    if options.out.exists() and any(options.out.iterdir()) and not (options.out / "swd").exists():
        raise UsageError(f"{options.out} holds something that is no demo: name another directory with --out")
    runs = {
        (replay, seed): options.out / replay / str(seed) for seed in range(1, options.seeds + 1) for replay in REPLAYS
    }
    print(f"TD3 on a pendulum whose gravity changes every {PERIOD:,} steps: uniform and age-weighted replay.")
    print(f"{len(runs)} runs, one on each core; about two minutes on two. Each is a directory like any other.")
    train_all(runs, options.steps)
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


def make_env() -> Any:
    """Pendulum-v1 whose gravity changes every PERIOD steps."""
    import gymnasium as gym

    class ChangingGravity(gym.Wrapper):
        """Sets the gravity of its time before every step."""

        steps = 0

        def step(self, action: Any) -> Any:
            """One step, in the world of its time."""
            pendulum: Any = self.env.unwrapped
            pendulum.g = GRAVITIES[self.steps // PERIOD % len(GRAVITIES)]
            self.steps += 1
            return self.env.step(action)

    return ChangingGravity(gym.make("Pendulum-v1"))


def train_one(replay: str, out: Path, steps: int, seed: int, core: int) -> None:
    """One run, on a core of its own."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    from neoteny.agents.configs import TD3Config
    from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
    from neoteny.training.start import train

    config = TrainConfig(
        f"Pendulum-v1, gravity changed every {PERIOD} steps",
        TD3Config(widths=(64, 64), actor_lr=1e-3, learning_starts=1_000),
        ReplayConfig(replay, decay_steps=None if replay == "uniform" else steps / 10),
        PlasticityConfig(probe_every=0),
        total_timesteps=steps,
        seed=seed,
        eval_every=0,
        log_every=250,
        checkpoint_every=0,
        threads=1,
    )
    train(config, out=out, make_env=make_env, quiet=True)


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


def train_all(runs: dict[tuple[str, int], Path], steps: int) -> None:
    """Every run in a process of its own, as many at a time as there are cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    spawn = multiprocessing.get_context("spawn")
    waiting, shown = list(runs.items()), 0.0
    busy: dict[int, tuple[Path, Any]] = {}
    while waiting or busy:
        for core in cores:
            if waiting and core not in busy:
                (replay, seed), run = waiting.pop(0)
                shutil.rmtree(run, ignore_errors=True)  # of the demo before this one
                busy[core] = run, spawn.Process(target=train_one, args=(replay, run, steps, seed, core))
                busy[core][1].start()
        time.sleep(0.5)
        for core, (run, process) in list(busy.items()):
            if not process.is_alive():
                if process.exitcode != 0:
                    raise UsageError(f"{run} failed with exit status {process.exitcode}; what it said stands above")
                del busy[core]
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            print("  " + "   ".join(_where(run, steps) for run, _ in busy.values()), flush=True)


def _where(run: Path, steps: int) -> str:
    path = run / "metrics.jsonl"
    step, last = 0, math.nan
    for line in path.read_text().splitlines()[-30:] if path.exists() else []:
        if line.endswith("}"):
            values = json.loads(line)
            step, last = values["step"], values.get("episode_return", last)
    return f"{run}: {step:>6,} / {steps:,}" + ("" if math.isnan(last) else f", return {last:8.1f}")


def _after_first_change(run: Path) -> float:
    steps, values = read_column(run, "episode_return")
    return float(values[steps > PERIOD].mean())
