"""``neoteny train``."""

from __future__ import annotations

from neoteny.commands.done import print_done
from neoteny.errors import UsageError, missing_extra
from neoteny.wording import did_you_mean

HELP = """usage: neoteny train AGENT --env ID [--replay swd] [--steps 1M] [--out DIR] ...

Train an agent:

  td3   for continuous actions
  sac   for continuous actions
  ddqn  for discrete actions, from vectors or from pixels

neoteny train td3 --help lists every flag of an agent, with its default; neoteny list names the replays, the
remedies and the environments. For example: neoteny train td3 --env Hopper-v5 --replay swd"""


def main(argv: list[str]) -> int:
    """Run ``neoteny train``."""
    from neoteny.agents.configs import AGENTS

    if argv[:1] in (["-h"], ["--help"]):
        print(HELP)
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

    from neoteny.machine.threads import limit_threads

    limit_threads(options.config)
    try:
        from neoteny.training.start import train as run_training
    except ImportError as error:
        raise missing_extra("training", "train", error) from error
    print_done(run_training(options.config, out=options.out, overwrite=options.overwrite))
    return 0
