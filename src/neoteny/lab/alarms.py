"""``neoteny lab alarms``: how often each measure of plasticity is wrong, on runs that are damaged or not on purpose.

Healthy runs of three tasks are trained beside damaged ones of two kinds. Primed ones make many updates on their first
100 transitions before they train as usual (Nikishin et al. 2022); such a run counts as damaged only if its late return
is below that of every healthy run of its task, since some recover. Dormant ones are the healthy runs at their end, nine
tenths of all hidden units silenced by their biases as in `neoteny lab recovery`, and then trained on their own replay.
A measure calls a run lost if it is beyond its bound late in the run, of any network. What it says of a healthy run is a
false alarm, what it does not say of a damaged one a miss. Bounds are those of `neoteny.plasticity.verdict`: they are
decided before the runs are made. `neoteny diagnose` reads the table, and lets no measure judge that has more than 1
false alarm in 20. The same command again goes on with what is not done.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neoteny.agents.configs import AgentConfig, DDQNConfig, TD3Config
from neoteny.arguments import Parser
from neoteny.errors import Interrupted, RunStopped, UsageError
from neoteny.experiments.cores import usable_cores
from neoteny.experiments.plan import Plan, PlannedRun
from neoteny.experiments.planned import check_planned
from neoteny.experiments.sweep import LOWEST, Outcome, sweep
from neoteny.lab.recovery import silenced
from neoteny.lab.tables import Case, case_of, late_return, markdown, table
from neoteny.machine.threads import limit_threads
from neoteny.measuring.diagnose import findings, series
from neoteny.plasticity.verdict import RULES, Observation, judge
from neoteny.runs.checkpoint import load
from neoteny.runs.files import write
from neoteny.runs.records import read_metrics
from neoteny.settings.config import PlasticityConfig, TrainConfig
from neoteny.training.afterwards import opened, put_back
from neoteny.training.updating import unpacking
from neoteny.wording import counted

SMALL = TD3Config((64, 64), actor_lr=1e-3, batch_size=64, learning_starts=1_000)
TASKS: dict[str, AgentConfig] = {
    "Pendulum-v1": SMALL,
    "CartPole-v1": DDQNConfig((64, 64), batch_size=64, learning_starts=1_000, utd=1.0, lr=5e-4),
    "InvertedDoublePendulum-v5": SMALL,
}
SHARE = 0.9
"""The share of the units of each hidden layer that is silenced."""
STORED = 4_096
"""Transitions on which silenced units are silent."""
SETTLING = 500
"""Updates of a silenced agent before it is first measured."""


@dataclass(frozen=True)
class Scale:
    """How much of it is done."""

    steps: int
    priming_updates: int
    seeds: int
    probe_every: int
    twin_every: int
    eval_every: int
    decides: bool


SCALES = {
    "full": Scale(300_000, 100_000, 5, 5_000, 30_000, 15_000, decides=True),
    "quick": Scale(4_000, 1_000, 1, 500, 1_500, 1_000, decides=False),
}


def main(argv: list[str]) -> int:
    """Train what is not trained yet, measure, and write the table."""
    parser = Parser(prog="neoteny lab alarms", description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="full", help="quick takes minutes, and decides nothing")
    parser.add_argument("--out", type=Path, default=Path("runs/lab-alarms"), help="where all is (runs/lab-alarms)")
    parser.add_argument("--jobs", type=int, help="how many runs to train at once (one on each core)")
    parser.add_argument("--low-priority", action="store_true", help="train at the lowest priority")
    options = parser.parse_args(argv)
    cores, scale = usable_cores(), SCALES[options.scale]
    if options.jobs is not None and not 1 <= options.jobs <= len(cores):
        raise UsageError(f"--jobs must be in 1..{len(cores)}, the cores that may be used, got {options.jobs}")
    plan = planned(scale, options.scale)
    print(f"{plan.title}: {counted(len(plan.runs), 'run')} of {scale.steps:,} steps in {options.out}")
    if not scale.decides:
        print("At this scale it shows only that it runs: it decides nothing.")
    check_planned(plan.runs, options.out)
    _check(sweep(plan, options.out, cores[: options.jobs], nice=LOWEST if options.low_priority else 0))
    cases = gathered(plan, scale, options.out)
    rows = table(cases, scale.decides, f"neoteny lab alarms --scale {options.scale}")
    text = markdown(cases, rows)
    write(options.out / "alarms.json", (json.dumps(rows, indent=1) + "\n").encode())
    write(options.out / "alarms.md", text.encode())
    print(f"\n{text}\nWrote {options.out / 'alarms.md'} and {options.out / 'alarms.json'}.")
    if scale.decides:
        print("neoteny diagnose judges by it once alarms.json is committed beside neoteny/measuring/alarms.py.")
    return 0


def planned(scale: Scale, name: str) -> Plan:
    """The training runs: healthy and primed, the same seeds of each, seeds slowest."""
    runs = [
        PlannedRun(method, config_of(env, seed, scale, priming))
        for seed in range(1, scale.seeds + 1)
        for env in TASKS
        for method, priming in (("healthy", 0), ("primed", scale.priming_updates))
    ]
    return Plan("lab/alarms", "False alarms and misses of each measure", name, "", "", tuple(runs))


def config_of(env: str, seed: int, scale: Scale, priming_updates: int) -> TrainConfig:
    """The configuration of one run, with one maths thread as a sweep has it."""
    return TrainConfig(
        env,
        TASKS[env],
        plasticity=PlasticityConfig(scale.probe_every, scale.twin_every),
        total_timesteps=scale.steps,
        priming_updates=priming_updates,
        seed=seed,
        eval_every=scale.eval_every,
        eval_episodes=5,
        threads=1,
    )


def gathered(plan: Plan, scale: Scale, out: Path) -> list[Case]:
    """What every measure shows of each run, and of each healthy one with its units silenced."""
    cases: list[Case] = []
    for run in plan.runs:
        path = out / run.directory
        cases.append(case_of(run.method, run.config.env, run.config.seed, findings(path), late_return(path)))
        if run.method == "healthy":
            shown = _remembered(out / "dormant" / f"{'-'.join(run.directory.parts)}.json", path, run.config, scale)
            cases.append(case_of("dormant", run.config.env, run.config.seed, shown, None))
    return cases


def _remembered(file: Path, run: Path, config: TrainConfig, scale: Scale) -> dict[str, list[Observation]]:
    """What `silenced_measures` gives of a run, from its file if it is there already."""
    if not file.exists():
        limit_threads(config)  # before JAX first computes anything in this process
        measured = silenced_measures(run, scale.probe_every)
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, (json.dumps(measured, indent=1) + "\n").encode())
        print(f"silenced {run}", flush=True)
    return observed(json.loads(file.read_text()))


def observed(measured: dict[str, dict[str, list[float]]]) -> dict[str, list[Observation]]:
    """What each rule says of measures by network and name, at first and after silencing."""
    rules = {rule.measure: rule for rule in RULES}
    return {
        network: [
            said
            for name, values in own.items()
            if (said := judge(rules[name], list(range(len(values))), values)) is not None
        ]
        for network, own in measured.items()
    }


def silenced_measures(run: Path, probe_every: int) -> dict[str, dict[str, list[float]]]:
    """Of each network every measure that has a rule: at first in the run, and after silencing and more updates.

    The updates are on the run's own replay: a few, a measurement, as many as between two measurements of the run (by
    which churn is the same measure), and the measurement that counts.
    """
    setup, session = opened(run)
    try:
        load(run, lambda manifest, state: put_back(run, setup, session, manifest, state))
    finally:
        session.envs.close()
    size, rng = setup.config.agent.batch_size, np.random.default_rng([setup.config.seed, 7])
    drawn = session.buffer.gather(rng.integers(0, len(session.buffer), STORED))
    data = {
        name: np.asarray(value[0]) for name, value in unpacking(session.buffer.layout)(drawn.rows[None], {}).items()
    }
    session.state = silenced(setup.agent, session.state, data, SHARE, setup.config.seed)
    measured: dict[str, float] = {}
    for count in (SETTLING, probe_every):
        for _ in range(count):
            rows = session.buffer.sample(size).rows.reshape(1, size, -1)
            session.state, _ = setup.update(session.state, rows, None, {}, None)
        session.updates += count
        assert setup.probes is not None
        measured = setup.probes.measure(session, rows, {})
    measured |= setup.fresh_twin.measure(session, session.updates)
    lines = [line for line in read_metrics(run) if any(name.startswith(("probe/", "replay/")) for name in line)]
    return {
        network: {
            rule.measure: [known[0], now]
            for rule in RULES
            if (known := [value for value in series(lines, network, rule.measure) if value is not None])
            and (now := series([measured], network, rule.measure)[0]) is not None
        }
        for network in setup.agent.networks
    }


def _check(outcome: Outcome) -> None:
    """Refuse to go on to a table while runs are missing."""
    if outcome.signal is not None:
        raise Interrupted("Stopped, with every run saved; the same command goes on.", outcome.signal)
    if not outcome.complete:
        reasons = [f"{directory}: {words}" for directory, words in outcome.failed.items()]
        reasons += [f"{run.directory} is in use by another process" for run in outcome.elsewhere]
        raise RunStopped(f"not every run is done, so there is no table: {'; '.join(reasons)}; the same command goes on")
