"""SIGKILL after a remedy has acted, for every remedy on every agent: the resumed run ends in the same bits."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from killing import check_lives, committed, finish, same, start
from neoteny.remedies.registry import REMEDIES
from neoteny.runs.records import read_lines, read_metrics

STEPS, BEGIN = 1_400, 100
"""Steps of a run, and those before its first update; from then on there is one update for each step."""
KILLED_FROM = 350
"""The least step of the checkpoint after which a run is killed: by then every remedy has acted."""
COMMON = (
    f"--steps {STEPS} --learning-starts {BEGIN} --capacity 600 --replay swd --decay-steps 300 --batch-size 8 --utd 1 "
    "--probe-every 0 --eval-every 0 --threads 1 --log-every 50 --checkpoint-every 0.25"
)
AGENTS = {
    "td3": "--env Pendulum-v1 --widths 8 8 --tau 0.02",
    "sac": "--env Pendulum-v1 --actor-width 4 --actor-blocks 1 --critic-width 4 --critic-blocks 1 --tau 0.02",
    "ddqn": "--env CartPole-v1 --widths 8 8 --target-every 60",
}
SETTINGS = {
    "regrama": "--regrama-every 80 --regrama-tau 0.2",
    "redo": "--redo-every 80 --redo-tau 0.2",
    "shrink-perturb": "--shrink-every 120",
    "injection": "--injection-at 120",
    "reset": "--reset-at 90 180 1000",
    "continual-backprop": "--cbp-rate 0.02 --cbp-maturity 40",
    "chain": "--chain-critics 1 --chain-actor 1 --chain-after 150 --chain-horizon 200",
    "pfo": "",
    "l2-init": "--l2-init-strength 0.01",
    "parseval": "",
    "upgd": "",
    "adam-rel": "",
    "optimiser-reset": "",
    "nap": "--nap-every 80",
    "growth": "--growth-at 90 180 --growth-reset-at 1100",
}
"""What makes each remedy act before `KILLED_FROM`, and again after it."""
NETWORKS = {("nap", "td3"): "layernorm", ("nap", "ddqn"): "layernorm", ("growth", "td3"): "simba"}
NETWORKS["growth", "ddqn"] = "simba"
"""The network that a remedy needs where it is not the agent's own."""
COMPILATIONS = {"injection": 2, "growth": 3}
"""How often the update of an uninterrupted run is compiled: once for each shape of the networks."""
IN_CI = {("chain", "ddqn"), ("adam-rel", "td3"), ("nap", "td3"), ("redo", "sac"), ("growth", "sac")}
"""One of each kind, killed by `make test` as well."""


def chosen() -> list[Any]:
    """Each remedy on each agent."""
    pairs = [(remedy, agent) for remedy in REMEDIES for agent in AGENTS]
    return [
        pytest.param(*pair, marks=pytest.mark.slow if pair in IN_CI else pytest.mark.long, id="-".join(pair))
        for pair in pairs
    ]


def words(agent: str, network: str | None, remedy: str | None) -> list[str]:
    """The command that trains an agent, made of such a network, with a remedy."""
    asked = f"--remedy {remedy} {SETTINGS[remedy]}" if remedy else ""
    return f"train {agent} {AGENTS[agent]} {COMMON} {f'--network {network}' if network else ''} {asked}".split()


@pytest.fixture(scope="module")
def untreated(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str | None], Path]:
    """Runs without a remedy by agent and network, each trained when first asked for."""
    folder = tmp_path_factory.mktemp("untreated")

    class Runs(dict[tuple[str, str | None], Path]):
        def __missing__(self, of: tuple[str, str | None]) -> Path:
            run = folder / "-".join(map(str, of))
            finish(start(*words(*of, None), "--out", str(run)))
            self[of] = run
            return run

    return Runs()


def kill_after_it_acted(command: list[str], run: Path, seed: int) -> int:
    """Train until a checkpoint of `KILLED_FROM` steps or more was made, and kill it; the last checkpoint's step."""
    process = start(*command, "--out", str(run))
    while process.poll() is None and committed(run) < KILLED_FROM:
        time.sleep(0.002)
    time.sleep(random.Random(seed).uniform(0, 0.1))
    alive = process.poll() is None
    process.kill()
    _, errors = process.communicate()
    assert alive, f"the run ended before it could be killed: {errors or 'give it more steps'}"
    return committed(run)


def until(run: Path, step: int) -> list[dict[str, Any]]:
    return [line for line in read_metrics(run) if line["step"] <= step]


@pytest.mark.parametrize(("remedy", "agent"), chosen())
def test_killed_after_it_acted_it_ends_the_same(
    remedy: str, agent: str, untreated: dict[tuple[str, str | None], Path], tmp_path: Path, record_property: Any
) -> None:
    run, whole, network = tmp_path / "run", tmp_path / "whole", NETWORKS.get((remedy, agent))
    command = words(agent, network, remedy)
    at = kill_after_it_acted(command, run, seed=list(REMEDIES).index(remedy))
    finish(start("resume", str(run)))
    finish(start(*command, "--out", str(whole)))
    check_lives(run, [at])
    same(run, whole)
    assert until(whole, at) != until(untreated[agent, network], at), "the remedy did nothing before the kill"
    acted = [line["updates"] for line in read_metrics(whole) if line.get("remedy") == remedy]
    before = [updates for updates in acted if updates <= at - BEGIN]
    assert not acted or before, "the remedy acted after the kill only"
    assert remedy != "growth" or before == [90, 180], "killed when the networks were of their first shape again"
    compiled = [line["compilations"]["update"] for line in read_lines(whole / "timing.jsonl") if "compilations" in line]
    assert compiled == [COMPILATIONS.get(remedy, 1)]
    surgery = f", surgery {len(before)} times before and {len(acted) - len(before)} after" if acted else ""
    record_property("measured", f"{remedy} on {agent}: killed after the checkpoint of step {at:,}{surgery}")
