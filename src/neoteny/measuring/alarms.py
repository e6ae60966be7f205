"""The table of false alarms and misses that `neoteny lab alarms` makes: which measures may call a run lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.plasticity.verdict import Alarms

NAME = "alarms.json"
"""The committed table, beside this file."""


def committed() -> dict[str, Alarms]:
    """The table that belongs to this version, by measure; empty until there is one."""
    path = Path(str(files("neoteny.measuring"))) / NAME
    return read(path) if path.is_file() else {}


def read(path: Path) -> dict[str, Alarms]:
    """The table in a file, by measure; empty if it says that it decides nothing."""
    try:
        table = json.loads(path.read_text())
        if table["decides"] is not True:
            return {}
        return {name: Alarms(name, **{key: row[key] for key in _NUMBERS}) for name, row in table["measures"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is not a table of neoteny lab alarms: {error!r}") from error


_NUMBERS = ("bound", "healthy", "false_alarms", "damaged", "misses")


def as_json(alarms: Sequence[Alarms], more: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Rows as `read` reads them. more: what else is told of each measure, which nothing reads."""
    return {
        one.measure: {**{key: getattr(one, key) for key in _NUMBERS}, **more.get(one.measure, {})} for one in alarms
    }
