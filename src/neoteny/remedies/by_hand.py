"""Surgery on a parameter tree of your own, in a loop of your own.

Each function takes the parameters and new ones of the same shapes, and returns the parameters and which of them were
changed; `cleared` then clears an optimiser's state of what was changed.
"""

from neoteny.networks import HiddenLayer
from neoteny.remedies.recycling import recycle
from neoteny.remedies.reset import reset
from neoteny.remedies.shrink_perturb import shrink_perturb
from neoteny.remedies.surgery import cleared

__all__ = ["HiddenLayer", "cleared", "recycle", "reset", "shrink_perturb"]
