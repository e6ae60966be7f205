"""What ``neoteny train`` takes: the flags of the command itself, and one for everything that can be set of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, make_dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Annotated, Any, Literal

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
    """The defaults of the other flags: swd-paper; small, scaled to the length of a short run; sac's swd-code, simba,
    simbav2, fog."""
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
    parsed, words = first.parse_known_args([_dashed(word) for word in argv])
    for flag in REPEATED:
        values = getattr(parsed, flag)
        words += [flag, *values] if values else []
    start = start_from(agent, parsed.preset, tyro.MISSING, parsed.steps)
    with _numbers():
        kind = _with_remedies()
        options = tyro.cli(
            kind,
            prog=name,
            description=f"Train {agent}. Numbers may be written 1000, 1_000, 1e3 or 1k, a million 1M.",
            default=kind(_as(_WithoutRemedies, start), preset=parsed.preset, steps=parsed.steps),
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
            args=words,
        )
    flags = fields(options.remedy_numbers)
    numbers = {
        flag.name: value for flag in flags if (value := getattr(options.remedy_numbers, flag.name)) != flag.default
    }
    names = options.remedy or [remedy.name for remedy in start.remedies]
    config = replace(_as(TrainConfig, options.config), remedies=from_settings(names, numbers))
    return replace(options, config=complete(config, parsed.preset))


@dataclass(frozen=True)
class _WithoutRemedies(TrainConfig):
    """A training run."""

    remedies: Annotated[Any, tyro.conf.Suppress] = ()  # they have flags of their own


def _as(kind: Any, config: TrainConfig) -> Any:
    return kind(**{field.name: getattr(config, field.name) for field in fields(config)})


def _with_remedies() -> Any:
    """`Options` with a flag for every setting of every remedy; None if it is not given, or False if it has no value."""
    kinds = setting_types()
    flags: list[Any] = []
    for setting, (name, field) in settings().items():
        switch = kinds[setting] is bool and field.default is False
        default = "" if switch or field.default in (None, ()) else f" ({_shown(field.default)})"
        help_text = tyro.conf.arg(help=field_docs(config_class(name))[field.name].removesuffix(".") + default)
        if switch:  # which is given alone, and there is no other that says no
            flags.append((setting, Annotated[bool, tyro.conf.FlagCreatePairsOff, help_text], False))
        else:
            flags.append((setting, Annotated[kinds[setting] | None, help_text], None))
    group = make_dataclass("Remedies", flags, frozen=True)
    own: list[Any] = [("config", _WithoutRemedies), ("remedy_numbers", group, dataclass_field(default=group()))]
    return make_dataclass("Options", own, bases=(Options,), frozen=True)


def _shown(default: Any) -> str:
    """A default as the command line would take it, or a number with its thousands."""
    return " ".join(map(str, default)) if isinstance(default, tuple) else f"{default:,}"


def _dashed(word: str) -> str:
    """A flag with dashes: --total_timesteps=3 is --total-timesteps=3."""
    name, equals, value = word.partition("=")
    return (name.replace("_", "-") if name.startswith("--") else name) + equals + value


def _numbers() -> ConstructorRegistry:
    """What lets tyro read numbers as `whole_number` and `number` do."""
    registry = ConstructorRegistry()
    readers: dict[Any, Callable[[str], float]] = {int: whole_number, float: number}
    kinds: dict[Any, tuple[Any, tuple[str, ...]]] = {kind: (kind, ()) for kind in readers}
    kinds |= {kind | None: (kind, ("None",)) for kind in readers}
    kinds |= {kind | Literal["auto", "drift"] | None: (kind, ("None", "auto", "drift")) for kind in readers}
    kinds |= {kind | Literal["auto"]: (kind, ("auto",)) for kind in readers}
    kinds |= {kind | Literal["auto"] | None: (kind, ("None", "auto")) for kind in readers}
    lists: dict[Any, Any] = {tuple[int, ...] | None: int, tuple[float, ...] | None: float}

    def several(words: list[str], kind: Any) -> tuple[float, ...]:
        if not words:
            raise ValueError("at least one number is needed")
        return tuple(readers[kind](word) for word in words)

    @registry.primitive_rule
    def list_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if info.type not in lists:
            return None
        kind = lists[info.type]
        return PrimitiveConstructorSpec(
            nargs="*",
            metavar=f"{kind.__name__.upper()} [{kind.__name__.upper()} ...]",
            instance_from_str=lambda words: several(words, kind),
            is_instance=lambda value: value is None or isinstance(value, tuple),
            str_from_instance=lambda value: ["None"] if value is None else [str(one) for one in value],
        )

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if info.type not in kinds:
            return None
        kind, words_for = kinds[info.type]
        values = {word: None if word == "None" else word for word in words_for}
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="|".join([kind.__name__.upper(), *(word for word in words_for if word != "None")]),
            instance_from_str=lambda words: values[words[0]] if words[0] in values else readers[kind](words[0]),
            is_instance=lambda value: value in values.values() or type(value) in (int, kind),
            str_from_instance=lambda value: [str(value)],
        )

    return registry
