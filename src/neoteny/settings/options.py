"""What ``neoteny train`` takes: the flags of the command itself, and one for everything that can be set of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, make_dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from neoteny.arguments import Parser, number, whole_number
from neoteny.remedies.registry import config_class, field_docs, from_settings, setting_types, settings
from neoteny.settings.config import TrainConfig
from neoteny.settings.presets import complete, start_from


@dataclass(frozen=True)
class Options:
    """The command's own flags, each a field here, and the run's configuration."""

    config: TrainConfig
    out: Path | None = None
    """The run's directory; if not given runs/<env>/<agent>-<replay>/<seed>-<id>."""
    overwrite: bool = False
    """Whether to replace a run that is in the directory already."""
    preset: str = "swd-paper"
    """The defaults of the other flags: swd-paper; small, scaled to the length of a short run; sac's swd-code, simba."""
    steps: int | None = None
    """Short for --total-timesteps."""
    remedy: tuple[str, ...] = ()
    """What restores or keeps plasticity, one of those that `neoteny list` shows; may be given more than once."""


REPEATED = ("--remedy", "--replay-arg")
"""Flags that may be given more than once; tyro takes one, with many values."""
EARLIER = {"--remedy": ("--intervention",)}
"""What flags were called at first."""


def parse(agent: str, argv: list[str]) -> Options:
    """The options that the words after ``neoteny train <agent>`` stand for."""
    name = f"neoteny train {agent}"
    first = Parser(name, None, add_help=False, allow_abbrev=False)  # what the defaults of the others depend on
    first.add_argument("--preset", default=Options.preset)
    first.add_argument("--steps", "--total-timesteps", type=int)
    for flag in REPEATED:
        first.add_argument(flag, *EARLIER.get(flag, ()), action="append", default=[], dest=flag)
    given, words = first.parse_known_args([_dashed(word) for word in argv])
    for flag in REPEATED:
        values = getattr(given, flag)
        words += [flag, *values] if values else []
    start = start_from(agent, given.preset, tyro.MISSING, given.steps)
    with _numbers():
        kind = _with_remedies()
        options = tyro.cli(
            kind,
            prog=name,
            description=f"Train {agent}. Numbers may be written 1000, 1_000, 1e3 or 1k, a million 1M.",
            default=kind(_as(_WithoutRemedies, start), preset=given.preset, steps=given.steps),
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
            args=words,
        )
    numbers = {name: value for name, value in vars(options.remedy_numbers).items() if value is not None}
    config = replace(_as(TrainConfig, options.config), remedies=from_settings(options.remedy, numbers))
    return replace(options, config=complete(config, given.preset))


@dataclass(frozen=True)
class _WithoutRemedies(TrainConfig):
    """A training run."""

    remedies: Annotated[Any, tyro.conf.Suppress] = ()  # they have flags of their own


def _as(kind: Any, config: TrainConfig) -> Any:
    return kind(**{field.name: getattr(config, field.name) for field in fields(config)})


def _with_remedies() -> Any:
    """`Options` with a flag for every setting of every remedy; None if it is not given."""
    kinds = setting_types()
    flags = []
    for setting, (name, field) in settings().items():
        default = "" if field.default is None else f" ({field.default:,})"
        help_text = field_docs(config_class(name))[field.name].removesuffix(".") + default
        flags.append((setting, Annotated[kinds[setting] | None, tyro.conf.arg(help=help_text)], None))
    group = make_dataclass("Remedies", flags, frozen=True)
    own: list[Any] = [("config", _WithoutRemedies), ("remedy_numbers", group, dataclass_field(default=group()))]
    return make_dataclass("Options", own, bases=(Options,), frozen=True)


def _dashed(word: str) -> str:
    """A flag with dashes: --total_timesteps=3 is --total-timesteps=3."""
    name, equals, value = word.partition("=")
    return (name.replace("_", "-") if name.startswith("--") else name) + equals + value


def _numbers() -> ConstructorRegistry:
    """What lets tyro read numbers as `whole_number` and `number` do."""
    registry = ConstructorRegistry()
    readers: dict[Any, Callable[[str], float]] = {int: whole_number, float: number}
    kinds = {kind: (kind, False) for kind in readers} | {kind | None: (kind, True) for kind in readers}

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if info.type not in kinds:
            return None
        kind, optional = kinds[info.type]
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=kind.__name__.upper(),
            instance_from_str=lambda words: None if optional and words == ["None"] else readers[kind](words[0]),
            is_instance=lambda value: (optional and value is None) or type(value) in (int, kind),
            str_from_instance=lambda value: [str(value)],
        )

    return registry
