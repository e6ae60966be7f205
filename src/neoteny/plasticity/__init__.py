"""Measures of plasticity, as formulas on plain arrays: NumPy's or JAX's, inside ``jax.jit`` too.

`neoteny.plasticity.flax` and `neoteny.plasticity.torch` collect what the formulas need from networks.
"""

from __future__ import annotations

from neoteny.plasticity.churn import policy_churn, value_churn
from neoteny.plasticity.neurons import (
    dormant_ratio,
    dormant_score,
    gradient_sparsity,
    grama_inactive_ratio,
    grama_score,
)
from neoteny.plasticity.norms import effective_learning_rate, l1_norm, l1_per_parameter, l2_norm, weight_norm
from neoteny.plasticity.ntk import GramMetrics, gram_metrics
from neoteny.plasticity.rank import RankMetrics, rank_metrics

__all__ = [
    "GramMetrics",
    "RankMetrics",
    "dormant_ratio",
    "dormant_score",
    "effective_learning_rate",
    "gradient_sparsity",
    "gram_metrics",
    "grama_inactive_ratio",
    "grama_score",
    "l1_norm",
    "l1_per_parameter",
    "l2_norm",
    "policy_churn",
    "rank_metrics",
    "value_churn",
    "weight_norm",
]
