"""``neoteny list``: everything that can be named on the command line."""

from __future__ import annotations

from neoteny.arguments import Parser
from neoteny.commands import COMMANDS
from neoteny.experiments.plan import papers_plans
from neoteny.plasticity.verdict import RULES
from neoteny.remedies.registry import REMEDIES, settings
from neoteny.replay.registry import REPLAYS, numbers_of
from neoteny.settings.presets import NAMES

SUITES = {
    "MuJoCo": "Ant-v5, HalfCheetah-v5, Hopper-v5, Humanoid-v5, Walker2d-v5 and the rest; in [train]",
    "DeepMind Control": "dm_control/humanoid-run-v0, dm_control/dog-walk-v0 and the rest; in [dmc]",
    "Atari": "ALE/Breakout-v5, ALE/Phoenix-v5 and the rest; in [atari]",
    "MinAtar": "MinAtar/Breakout-v1, MinAtar/Seaquest-v1 and the rest, neoteny/MinAtarInTurn-v0; in [minatar]",
    "worlds that change": "neoteny/DriftingCartPole-v0, neoteny/DriftingPendulumGravity-v0 and the rest; in [train]",
    "LunarLander that changes": "neoteny/DriftingLunarLander-v0, neoteny/DriftingLunarLanderGravity-v0; in [box2d]",
    "any other": "that Gymnasium has registered; from Python, make_env=",
}


def main(argv: list[str]) -> int:
    """Run ``neoteny list``."""
    Parser(prog="neoteny list", description=COMMANDS["list"]).parse_args(argv)
    print(describe())
    return 0


def describe() -> str:
    """A part for each kind of thing."""
    parts = {
        "agents": {agent: f"presets {', '.join(presets)}" for agent, presets in NAMES.items()},
        "replays": {
            name: ", ".join("--" + number.replace("_", "-") for number in numbers_of(named)) or "no numbers"
            for name, named in REPLAYS.items()
        },
        "remedies": {
            name: ", ".join("--" + setting.replace("_", "-") for setting, (own, _) in settings().items() if own == name)
            or "no numbers"
            for name in REMEDIES
        },
        "measures of plasticity": {rule.measure: f"healthy: {rule.healthy}" for rule in RULES},
        "environments": SUITES,
        "plans": {", ".join(papers_plans()): "see neoteny claims"},
    }
    lines = []
    for title, entries in parts.items():
        width = max(len(name) for name in entries) if title != "plans" else 0
        lines += [title, *(f"  {name:<{width}}  {text}" for name, text in entries.items()), ""]
    return "\n".join(lines).rstrip()
