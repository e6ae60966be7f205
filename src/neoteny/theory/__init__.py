"""The paper's theory in numbers: exact MDPs, fitted Q-iteration, and each statement checked over random problems."""

from __future__ import annotations

from neoteny.theory.bounds import suboptimality, tight_case
from neoteny.theory.fqi import FQIRun, first_gradients
from neoteny.theory.functions import NeuralFunction, random_features, tabular
from neoteny.theory.mdp import MDP, random_mdps
from neoteny.theory.results import Check
from neoteny.theory.theorems import theorem_1, theorem_2

__all__ = [
    "MDP",
    "Check",
    "FQIRun",
    "NeuralFunction",
    "first_gradients",
    "random_features",
    "random_mdps",
    "suboptimality",
    "tabular",
    "theorem_1",
    "theorem_2",
    "tight_case",
]
