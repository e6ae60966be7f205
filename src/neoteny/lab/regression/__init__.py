"""``neoteny lab regression``: a network fits a stream from a replay of what came, without RL, under several laws."""

from neoteny.lab.regression.command import main

__all__ = ["main"]
