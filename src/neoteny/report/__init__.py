"""From runs to a verdict: scores, statistics, a page with figures and tables.

`load_runs` gives everything that runs, archives and other people's files say as one pandas table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neoteny.lazy import lazily

if TYPE_CHECKING:
    from neoteny.report.scores import load_runs
    from neoteny.report.verdict import Claim

__all__ = ["Claim", "load_runs"]

if not TYPE_CHECKING:  # these bring pandas and more with them: loaded when first used
    __getattr__ = lazily(
        __name__,
        {
            "load_runs": "neoteny.report.scores",
            "Claim": "neoteny.report.verdict",
        },
    )
