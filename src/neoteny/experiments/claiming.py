"""What a plan's file claims: which methods it compares, and by what."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from neoteny.experiments.limits import few
from neoteny.experiments.source import Source
from neoteny.report.about import NOT_THE_PAPERS
from neoteny.report.suites import SUITES
from neoteny.report.verdict import Claim
from neoteny.settings.types import shown


def claims_of(data: Mapping[str, Any], methods: Iterable[str], source: Source) -> tuple[Claim, ...] | None:
    """What a file claims; None if it leaves that open."""
    if "claims" not in data:
        return None
    said = data.get("paper", "")
    said = "" if said.startswith(NOT_THE_PAPERS) else said
    methods = dict.fromkeys(methods)
    claims = []
    for index, fields in enumerate(data["claims"]):
        keys = ("claims", index)
        try:
            claim = Claim(**{"paper": said, **fields})
        except TypeError as error:
            names = ", ".join(field.name for field in dataclasses.fields(Claim))
            raise source.wrong(
                keys, f"a claim has method and baseline, and may have {names}: this one has {few(fields) or 'nothing'}"
            ) from error
        for key in ("method", "baseline"):
            if (method := getattr(claim, key)) not in methods:
                raise source.wrong(
                    (*keys, key), f"it claims something of {shown(method)}; its methods are {few(methods)}"
                )
        if claim.method == claim.baseline:
            raise source.wrong(keys, f"it compares {shown(claim.method)} with itself: name another baseline")
        if claim.suite not in ("", *SUITES):
            raise source.wrong(
                (*keys, "suite"), f"a claim's suite is one of {', '.join(SUITES)}, got {shown(claim.suite)}"
            )
        claims.append(claim)
    return tuple(claims)
