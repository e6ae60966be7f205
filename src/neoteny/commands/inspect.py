"""``neoteny inspect``."""

from __future__ import annotations

import json
from pathlib import Path

from neoteny.arguments import Parser
from neoteny.commands import COMMANDS


def main(argv: list[str]) -> int:
    """Run ``neoteny inspect``."""
    parser = Parser(prog="neoteny inspect", description=COMMANDS["inspect"])
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(argv)
    from neoteny.runs.inspect import describe, facts_of

    facts = facts_of(options.run)
    print(json.dumps(facts, indent=2) if options.json else describe(facts))
    return 0
