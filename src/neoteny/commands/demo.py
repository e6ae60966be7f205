"""``neoteny demo`` and ``neoteny demo laws``."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run ``neoteny demo``, or with `laws` as the first word ``neoteny demo laws``."""
    if argv[:1] == ["laws"]:
        from neoteny.demo.laws import main as draw_laws

        return draw_laws(argv[1:])
    from neoteny.demo.drift import main as run_demo

    return run_demo(argv)
