"""Every remedy on every agent: a small task is still solved, with SWD, while the remedy acts."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_tasks import evaluations, train

from neoteny.remedies import REMEDIES

TASKS = {
    "td3": (-250, "--env Pendulum-v1 --steps 14k --learning-starts 1k --actor-lr 1e-3 --decay-steps 5k"),
    "sac": (
        -250,
        "--env Pendulum-v1 --steps 8k --learning-starts 500 --lr 1e-3 --decay-steps 5k"
        " --critic-width 64 --critic-blocks 1 --actor-width 64",
    ),
    "ddqn": (
        475,
        "--env CartPole-v1 --steps 40k --learning-starts 1k --lr 1e-3 --batch-size 128 --decay-steps 10k"
        " --target-every 200 --utd 0.5 --exploration-fraction 0.2",
    ),
}
"""What counts as solved, and the settings that do it without a remedy."""
SOONER = {
    "shrink-perturb": "--shrink-every 2k",
    "reset": "--reset-at 2k",
    "continual-backprop": "--cbp-maturity 500",
    "chain": "--chain-after 2k",
    "nap": "--nap-every 1k --network layernorm",
    "growth": "--network simba --growth-at 1k --growth-reset-at 2k",
}
"""Numbers with which a remedy acts within these short runs; those of the others are their own."""


@pytest.mark.long
@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("agent", TASKS)
def test_a_task_is_solved_under_a_remedy(agent: str, remedy: str, tmp_path: Path) -> None:
    solved, settings = TASKS[agent]
    words = f"{agent} {settings} --replay swd --eval-every 2k --remedy {remedy} {SOONER.get(remedy, '')}"
    if remedy == "growth" and agent != "sac":
        words += " --widths 64"  # of SimBa's one block
    returns = evaluations(train(tmp_path / "run", *words.split()))
    print(f"{agent} {remedy}: {returns}")
    assert max(returns[-3:]) >= solved


NETWORKS = {
    **{
        f"{agent} {network}": f"--network {network}"
        for agent in TASKS
        for network in ("layernorm", "crelu", "spectral")
    },
    "td3 simbav2": "--network simbav2 --widths 64",
    "ddqn simbav2": "--network simbav2 --widths 64",
    "sac preset simbav2": "--preset simbav2",
    "sac preset fog": "--preset fog --growth-at 1k --growth-reset-at 2k",
}
"""The other networks, and the presets that are built on them, at the sizes of these tasks."""


@pytest.mark.long
@pytest.mark.parametrize("case", NETWORKS)
def test_a_task_is_solved_with_another_network(case: str, tmp_path: Path) -> None:
    agent = case.split()[0]
    solved, settings = TASKS[agent]
    # A preset has a replay of its own.
    words = settings.replace("--decay-steps 5k", "") if "preset" in case else f"{settings} --replay swd"
    returns = evaluations(train(tmp_path / "run", *f"{agent} {words} --eval-every 2k {NETWORKS[case]}".split()))
    print(f"{case}: {returns}")
    assert max(returns[-3:]) >= solved
