"""Benchmarks: speed as ratios, measured alternately in one run. ``neoteny bench`` or ``python -m neoteny.bench``."""
