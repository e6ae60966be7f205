"""``neoteny lab``: small experiments that isolate one thing about plasticity, each a module of `neoteny.lab`."""

from __future__ import annotations

from neoteny.commands import EXPERIMENTS
from neoteny.commands.grouped import run_one


def main(argv: list[str]) -> int:
    """Run the experiment that the first word names, or list them."""
    return run_one("lab", "experiment", EXPERIMENTS, argv)
