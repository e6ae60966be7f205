"""``neoteny reproduce``: what ``neoteny sweep`` does, for a claim of the paper, with a report at the end."""

from __future__ import annotations

from neoteny.commands.sweep import carry_out


def main(argv: list[str]) -> int:
    """Run ``neoteny reproduce``."""
    return carry_out("reproduce", argv)
