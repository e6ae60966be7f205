"""``neoteny lab``: small experiments that isolate one thing about plasticity: modules of `neoteny.lab`, or plans."""

from __future__ import annotations

from neoteny.commands import EXPERIMENTS, PLANNED
from neoteny.commands.grouped import run_one


def main(argv: list[str]) -> int:
    """Run the experiment that the first word names, or list them."""
    if argv and argv[0] in PLANNED:
        from neoteny.commands.sweep import carry_out

        return carry_out("reproduce", [f"lab/{argv[0]}", *argv[1:]])
    return run_one("lab", "experiment", EXPERIMENTS, argv)
