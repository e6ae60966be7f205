"""Plans: a TOML file names what varies, and expands to runs, each with an id from its full configuration."""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.experiments.checking import (
    SMALLER,
    check_config,
    checked,
    checked_includes,
    in_a_plans_words,
    shaped,
    where,
)
from neoteny.experiments.claiming import claims_of
from neoteny.experiments.configuring import config_of, in_a_name
from neoteny.experiments.limits import MOST_RUNS
from neoteny.experiments.reading import read
from neoteny.experiments.reduced import differences
from neoteny.experiments.source import Keys, Source
from neoteny.report.suites import by_suite
from neoteny.report.verdict import Claim
from neoteny.settings.config import TrainConfig
from neoteny.settings.types import shown
from neoteny.wording import did_you_mean

SCALES = ("full", *SMALLER)
FOLDERS = {"swd": "paper", "controls": "controls", "programme": "programme", "lab": "lab"}
"""Where our own plans are, by the first half of their names."""
DEEPEST = 5
"""Plans that may include each other in a row."""
SILENT = "it decides nothing"
"""What `reduced` says of the quick scale, from which no verdict comes."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan: what it is called in figures, and everything that is set of it."""

    method: str
    config: TrainConfig
    source: Source = field(default=Source("plan"), compare=False, repr=False)
    """The file that plans it."""

    @cached_property
    def directory(self) -> Path:
        """Where it lives under the sweep's directory: environment, agent and replay, seed and id."""
        return self.config.default_directory().relative_to("runs")


@dataclass(frozen=True)
class Plan:
    """What a file says, at one scale."""

    name: str
    title: str
    scale: str
    paper: str
    """What the paper reports of this."""
    reduced: str
    """Every setting that differs from the full scale, and what that means, in words; empty at full scale."""
    runs: tuple[PlannedRun, ...]
    claims: tuple[Claim, ...] | None = None
    """What is compared with what; if not given, every method with uniform replay."""
    instead_of: str = ""
    """The plan whose smaller scale this plan is; empty if it was asked for by its own name."""

    @property
    def speaks(self) -> bool:
        """Whether verdicts come from it: the quick scale only shows that it runs."""
        return self.scale != "quick"

    def shard(self, index: int, count: int) -> Plan:
        """The index-th of `count` parts, counted from 1; parts take runs in turn."""
        if not 1 <= index <= count:
            raise UsageError(f"--shard I/N needs 1 <= I <= N, got {index}/{count}")
        return dataclasses.replace(self, runs=self.runs[index - 1 :: count])


def papers_plans() -> dict[str, Path]:
    """The plans of the paper's claims and of our controls, by name: swd/fig2, controls/window."""
    here = Path(str(files("neoteny.experiments")))
    by_prefix = {prefix: sorted((here / folder).glob("*.toml"), key=_order) for prefix, folder in FOLDERS.items()}
    return {f"{prefix}/{path.stem}": path for prefix, paths in by_prefix.items() for path in paths}


def _order(path: Path) -> tuple[str, int]:
    """fig2 before fig10."""
    letters = path.stem.rstrip("0123456789")
    return letters, int(path.stem[len(letters) :] or 0)


def scales_of(name: str) -> tuple[str, ...]:
    """The scales that a plan of ours has itself: full, and those for which it says what they change."""
    known = papers_plans()
    data = tomllib.loads(known[name].read_text())
    parts = [scales_of(part) for part in data.get("includes", ()) if part in known]
    own = {scale for scale in SMALLER if isinstance(data.get(scale), dict)}
    return tuple(
        scale for scale in SCALES if scale in ("full", *own) or (parts and all(scale in part for part in parts))
    )


def instead(name: str) -> dict[str, str]:
    """The plans that are carried out instead of smaller scales of a plan of ours, by the scale."""
    data = tomllib.loads(papers_plans()[name].read_text())
    return {scale: data[scale] for scale in SMALLER if isinstance(data.get(scale), str)}


def load_plan(name: str, scale: str = "full") -> Plan:
    """The plan in a file, or one of ours by its name, such as swd/fig2. It is checked whole, at every scale it has.

    A plan may name another one for a smaller scale, as swd/fig3 names lab/minatar: that one is then returned.
    """
    path = find(name)
    data, text = read(path, name)
    if scale in SMALLER and isinstance(other := data.get(scale), str):
        plan = _load(other, _named(other, scale, Source(name, text)), "full", (), {})
        return dataclasses.replace(plan, instead_of=name)
    return _load(name, path, scale, (), {})


def _named(other: str, scale: str, source: Source) -> Path:
    """The file of the plan that `source` names for a smaller scale."""
    try:
        return find(other)
    except UsageError as error:
        said = f"{scale} must be a table of what it changes, or name a plan that is there, got {shown(other)}"
        raise source.wrong((scale,), f"{said}{did_you_mean(other, papers_plans())}") from error


def find(name: str) -> Path:
    """The file of a plan, by its path or by the name of one of ours."""
    known = papers_plans()
    if name in known:
        return known[name]
    try:
        if (path := Path(name)).is_file():
            return path
        if path.is_dir():
            raise UsageError(f"{name} is a directory: name a .toml file, or a plan of ours")
    except (OSError, ValueError):  # a name that no file can have
        pass
    if name.endswith(".toml"):
        raise UsageError(f"there is no file {name}: name a .toml file that is there, or a plan of ours")
    choices = f"{', '.join(known)}{did_you_mean(name, known)}"
    raise UsageError(f"there is no plan {shown(name)}: name a .toml file, or one of {choices}")


def _load(name: str, path: Path, scale: str, above: tuple[Path, ...], loaded: dict[Path, Plan]) -> Plan:
    """The plan in a file. above: the files that include it, the outermost first. loaded: what was read before."""
    data, text = read(path, name)
    source = Source(name, text, scale)
    name = name if name in papers_plans() else path.stem
    for each in SMALLER:
        if isinstance(other := data.get(each), str):
            _named(other, each, source)
            if each == scale:
                raise UsageError(
                    f"{name} has no {scale} scale of its own to include: run {other}, or the whole at --scale full"
                )
    if "includes" not in data:
        return make_plan(name, data, scale, source)
    data = checked_includes(shaped(data, source), source)
    above = (*above, path.resolve())
    parts = []
    for part in data["includes"]:
        try:
            inner = find(part)
        except UsageError as error:
            raise source.wrong(("includes",), f"it includes {shown(part)}, and {error}") from error
        if (file := inner.resolve()) in above:
            whole = " includes ".join(one.name for one in (*above[above.index(file) :], file))
            raise source.wrong(("includes",), f"a plan cannot include itself: {whole}")
        if len(above) == DEEPEST:
            raise source.wrong(
                ("includes",), f"more than {DEEPEST} plans include each other: name the last one instead"
            )
        if file not in loaded:
            loaded[file] = _load(part, inner, scale, above, loaded)
        parts.append(loaded[file])
    reduced = parts[0].reduced
    if len(parts) > 1:
        reduced = "; ".join(f"{part.name}: {part.reduced}" for part in parts if part.reduced)
    runs = _joined(parts, source)
    claims = claims_of(data, (run.method for run in runs), source)
    if claims is None:
        claims = tuple(dict.fromkeys(claim for part in parts for claim in _included(part, data.get("paper", ""))))
    return Plan(name, data["title"], scale, data.get("paper", ""), reduced, runs, claims)


def _joined(parts: Sequence[Plan], source: Source) -> tuple[PlannedRun, ...]:
    """The runs of plans that another includes, each once."""
    runs: dict[Path, PlannedRun] = {}
    for run in (run for part in parts for run in part.runs):
        if (known := runs.setdefault(run.directory, run)).method != run.method:
            both = f"{known.source.name} calls it {known.method} and {run.source.name} {run.method}"
            raise source.wrong(("includes",), f"two plans have the same run under different names: {both}")
    if len(runs) > MOST_RUNS:
        raise source.wrong(("includes",), f"it has {len(runs):,} runs: a plan has at most {MOST_RUNS:,}")
    return tuple(runs.values())


def _included(part: Plan, paper: str) -> Iterator[Claim]:
    """The claims of a plan that another includes: each on its own suite, so that suites are never pooled."""
    suites = list(by_suite([run.config.env for run in part.runs]))
    for claim in part.claims or ():
        suite = claim.suite or (suites[0] if len(suites) == 1 else "")
        yield dataclasses.replace(claim, suite=suite, paper=paper if claim.paper == part.paper else claim.paper)


def make_plan(name: str, data: Mapping[str, Any], scale: str = "full", source: Source | None = None) -> Plan:
    """A plan from what its file says. source: that file, for errors."""
    if scale not in SCALES:
        raise UsageError(f"--scale is one of {', '.join(SCALES)}, got {scale!r}")
    source = source or Source(f"plan {name}", scale=scale)
    data = shaped(data, source)
    smaller = {each: data.pop(each) for each in SMALLER if each in data}
    plans = {"full": _at_one_scale(name, "full", data, dataclasses.replace(source, scale="full"))}
    for each, part in smaller.items():
        if not isinstance(part, str):
            plans[each] = _reduced(plans["full"], data, part, dataclasses.replace(source, scale=each))
    if scale not in plans:
        raise source.wrong((), f"plan {name} has no [{scale}] part: {_what_there_is(name, list(plans))}")
    return plans[scale]


def _reduced(full: Plan, data: Mapping[str, Any], part: Mapping[str, Any], source: Source) -> Plan:
    """A plan at a smaller scale, with what it reduces in words. part: what the scale replaces."""
    part = dict(part)
    means = part.pop("reduced", "")
    settings = {**data.get("settings", {}), **part.get("settings", {})}
    plan = _at_one_scale(full.name, source.scale, {**data, **part, "settings": settings}, source)
    said = (differences(full.runs, plan.runs), means, SILENT * (not plan.speaks))
    return dataclasses.replace(plan, reduced="; ".join(words for words in said if words))


def _what_there_is(name: str, scales: Sequence[str]) -> str:
    """What can be carried out where a plan lacks a scale."""
    lab = [known for known in papers_plans() if known.startswith("lab/")]
    small = f"; the laboratory's plans are made for a laptop: {', '.join(lab)}" if name.startswith("swd/") else ""
    return f"run it at its {' or '.join(scales)} scale, {' or '.join(f'--scale {scale}' for scale in scales)}{small}"


def _at_one_scale(name: str, scale: str, data: Mapping[str, Any], source: Source) -> Plan:
    data = checked(data, source)
    runs = tuple(_expand(data, source))
    same: dict[Path, str] = {}
    for run in runs:
        if run.directory in same:
            both = f"{same[run.directory]} and {run.method}"
            raise source.wrong(("methods",), f"the methods {both} have the same configuration: every run needs its own")
        same[run.directory] = run.method
    if len({(run.method, run.config.env, run.config.seed) for run in runs}) < len(runs):
        raise source.wrong(("grid",), "two methods have the same name with the grid's values: name them differently")
    return Plan(
        name,
        data["title"],
        scale,
        data.get("paper", ""),
        "",
        runs,
        claims_of(data, (run.method for run in runs), source),
    )


def _expand(data: Mapping[str, Any], source: Source) -> Iterator[PlannedRun]:
    grid, common = data["grid"], data["settings"]
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    # Seeds change slowest, so that a sweep that is cut short has compared every method on the first of them.
    for seed, env, (method, own), point in itertools.product(
        data["seeds"], data["environments"], data["methods"].items(), points
    ):
        label = ", ".join([method, *(f"{key} {in_a_name(value)}" for key, value in point.items())])
        try:
            settings = {"preset": data.get("preset", "swd-paper"), **common, **own, **point}
            config = config_of(data["agent"], settings.pop("preset"), env, seed, data["steps"], settings)
            check_config(config)
        except UsageError as error:
            places: dict[str, Keys] = {"seed": ("seeds",), "total_timesteps": ("steps",)}
            places |= {key: ("settings", key) for key in common}
            places |= {key: ("methods", method, key) for key in own}
            places |= {key: ("grid", key) for key in point}
            keys = where(str(error), places, places.get("replay", ("methods", method)))
            which = f" (method {label})" if keys[0] == "methods" else ""
            raise source.wrong(keys, in_a_plans_words(str(error)) + which) from error
        yield PlannedRun(label, config, source)
