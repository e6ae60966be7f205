"""The commands of ``neoteny``, one module each, whose ``main`` takes the words after it and returns an exit status.

The module of a command is loaded only when it is asked for; a benchmark is a module of `neoteny.bench`,
an experiment of the laboratory one of `neoteny.lab`, or a plan.
"""

from __future__ import annotations

BENCHMARKS = {
    "train": "steps a second beside Stable-Baselines3 and SBX, and where a step's time goes",
    "start": "seconds from the command to the first update, and the memory of a full replay",
    "growth": "how a step's time grows with the replay, the batch, the updates and the network",
    "replay": "what a draw and a sample cost, beside uniform replay",
    "checkpoint": "what a checkpoint costs, in seconds of pause and bytes on disk",
    "probes": "what measuring plasticity adds to training time",
    "remedies": "what each remedy costs, over training without one",
    "sweep": "steps a second of a sweep on every core, over one run alone",
    "integrations": "what sampling by age costs inside other frameworks, over their uniform sampling",
}
"""Every benchmark, and what it measures."""

PLANNED = {
    "priming": "whether age-weighted replay gives back what 100,000 updates on 100 transitions take from TD3",
    "drift": "what age-weighted replay gains in worlds that change, beside replays as young as it",
    "minatar": "the same of Double DQN on MinAtar, one game and three in turn",
}
"""The experiments of the laboratory that are plans: ``neoteny lab priming`` is ``neoteny reproduce lab/priming``."""

EXPERIMENTS = {
    **PLANNED,
    "recovery": "which remedies bring back a network that was made dormant on purpose",
    "alarms": "how often each measure of plasticity is wrong, on healthy and on damaged runs: hours, or --scale quick",
    "regression": "what replay by age does to a network that fits a slowly changing function, without RL",
}
"""Every experiment of the laboratory, and what it asks."""

COMMANDS = {
    "demo": "watch TD3 with uniform and age-weighted replay in a world that changes: two minutes, and a picture",
    "demo laws": "draw from a wrapped buffer under every schedule, and make a picture of it",
    "train": "train an agent: neoteny train td3|sac|ddqn --env ID [--replay swd] ...",
    "resume": "go on with a run from its last checkpoint, to the same result as if it had never stopped",
    "evaluate": "evaluate a run's policy over whole episodes, with a video if asked for",
    "inspect": "say what a run is and how far it got, with a digest of each part of its state",
    "diagnose": "show how plasticity moved over a run, and whether it is lost by a measure that is seldom wrong",
    "advise": "say what a replay's schedule does and which T it could have: neoteny advise RUN, ARCHIVE or SB3 BUFFER",
    "sweep": "carry out a plan of many runs, one on each core or on a Ray cluster: neoteny sweep PLAN",
    "reproduce": "carry out the plan of one of the paper's claims: neoteny reproduce swd/fig2 [--scale laptop]",
    "report": "a page with a verdict in words, figures and tables: neoteny report DIR... [--plan swd/fig2]",
    "archive": "turn finished runs into small text files that belong in git: neoteny archive RUNS --out results/NAME",
    "claims": "every claim of the paper, and what is known of it here so far",
    "list": "the agents, replays, remedies, measures and environments",
    "theory": "check every statement of the paper's theory in numbers: a table and plots, in minutes",
    "lab": "list the experiments of the laboratory, which isolate one thing about plasticity",
    **{f"lab {name}": about for name, about in EXPERIMENTS.items()},
    "bench": "list the benchmarks",
    **{f"bench {name}": about for name, about in BENCHMARKS.items()},
    "help": "this text, or a command's own: neoteny help train",
    "version": "print the version",
}
"""Every command, and what it does in a line. The command of one word is the module of its name here."""

TRAINING = {"train", "resume", "sweep", "reproduce", "demo", *(f"lab {name}" for name in PLANNED)}
"""The commands that train: what they cannot print is dropped, and they go on. Others are of no use without it."""

SLOW_TO_LOAD = {"train", "resume", "evaluate", "sweep", "reproduce", *(f"lab {name}" for name in PLANNED)}
"""The commands that load JAX and simulators first, where Ctrl-C leaves at once. A run that has begun is saved."""
