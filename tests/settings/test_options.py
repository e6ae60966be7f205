"""The flags of ``neoteny train``."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.remedies import ReDo, Reset
from neoteny.settings.options import Options, parse


def test_every_flag_is_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["train", "td3", "--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    flags = {field.name for field in fields(Options)} - {"config"} | {"env", "total-timesteps", "replay", "widths"}
    assert {"out", "preset", "steps"} < flags
    assert [flag for flag in flags if not re.search(f"--{flag}(,| [A-Z[{{])", shown)] == []


def test_numbers_are_read_alike_however_they_are_written() -> None:
    plain = "--env X --steps 3000 --capacity 10000 --eval-every 500 --widths 100 64 --decay-steps 80000"
    other = "--env X --total_timesteps 3k --capacity 1e4 --eval-every=0.5k --widths 1e2 64 --decay-steps 80k"
    first, second = parse("td3", plain.split()).config, parse("td3", other.split()).config
    assert first == second
    assert second.total_timesteps == 3_000
    assert type(second.replay.capacity) is int
    assert second.replay.decay_steps == 80_000.0


def test_the_commands_own_flags() -> None:
    words = "--env X --out there --remedy redo --intervention reset --redo-tau 0.5 --preset simba".split()
    options = parse("sac", words)
    assert (options.out, options.preset) == (Path("there"), "simba")
    assert options.config.remedies == (ReDo(tau=0.5), Reset())
    assert options.config.agent.utd == 2.0
    with pytest.raises(UsageError, match=r"sac has the presets .*, got 'simbaa'; did you mean simba\?"):
        parse("sac", ["--env", "X", "--preset", "simbaa"])


def test_a_remedys_list_and_its_switch() -> None:
    words = "--env X --remedy reset --reset-at 15k 5e4 250_000 --reset-alpha --replay swd".split()
    config = parse("sac", words).config
    assert config.remedies == (Reset(at=(15_000, 50_000, 250_000), alpha=True),)
    assert config.replay.replay == "swd"
    assert parse("sac", ["--env", "X", "--remedy", "reset"]).config.remedies == (Reset(),)
    for flag in ("--reset-alpha", "--reset-at 5"):
        with pytest.raises(UsageError, match=f"{flag.split()[0]} is for --remedy reset, which is not asked for"):
            parse("sac", ["--env", "X", *flag.split()])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--remedy reset --reset-at", "--reset-at: at least one number is needed"),
        ("--remedy reset --reset-at 5 1.5", "--reset-at: a whole number is needed"),
        ("--steps 1.5", "argument --steps/--total-timesteps: a whole number is needed"),
        ("--batch-size 1.5", "a whole number is needed, such as"),
        ("--eval-every often", "a whole number is needed, such as"),
        ("--learning-start 5", "--learning-starts INT"),
        ("--replay swdd", "or package.module:Class; did you mean swd?"),
    ],
)
def test_what_is_wrong_is_said(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = main(["train", "td3", "--env", "Pendulum-v1", *words.split()])
    except SystemExit as left:  # by tyro
        status = left.code
    said = " ".join(word for word in capsys.readouterr().err.split() if word != "│")
    assert status == 2
    assert message in said
    assert "Traceback" not in said
