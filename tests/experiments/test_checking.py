"""A plan that is wrong is refused whole, in one sentence with the key and the file's line, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.experiments.plan import load_plan, make_plan
from neoteny.experiments.source import dotted, line_of
from neoteny.settings.types import fitted

GOOD = """
title = "Two replays"
agent = "td3"
environments = ["Pendulum-v1"]
steps = 300
seeds = [1, 2]

[settings]
learning_starts = 100

[methods]
uniform = { replay = "uniform" }
"swd, short" = { replay = "swd", decay_steps = 100 }

[grid]
utd = [1, 2]
"""
LINES = {line: number for number, line in enumerate(GOOD.split("\n"), start=1)}
"""The line of each statement."""

SETTING = "learning_starts = 100"
UNIFORM = 'uniform = { replay = "uniform" }'
SWD = '"swd, short" = { replay = "swd", decay_steps = 100 }'
WRONG = [
    ("steps = 300", 'steps = "300"', "steps must be a whole number, got '300'"),
    ("steps = 300", "steps = 300.5", "steps must be a whole number, got 300.5"),
    ("steps = 300", "steps = true", "steps must be a whole number, got True"),
    ("steps = 300", "steps = nan", "steps must be a finite number, got nan"),
    ("steps = 300", "steps = 1e12", "steps must be at most 4,294,967,295, got 1000000000000"),
    ("steps = 300", "steps = 0", "steps must be >= 1, got 0"),
    ("seeds = [1, 2]", "seeds = 3", "seeds must be a list of whole numbers, got 3: write [3]"),
    ("seeds = [1, 2]", "seeds = [1, 1]", "seeds has 1 twice: name each once"),
    ("seeds = [1, 2]", "seeds = [true]", "seeds must be a list of whole numbers, got [True]"),
    ("seeds = [1, 2]", "seeds = []", "seeds is empty: it must hold at least one"),
    ("seeds = [1, 2]", "seeds = [1, -2]", "seed must be a whole number from 0 to 4294967295, got -2"),
    (
        'environments = ["Pendulum-v1"]',
        'environments = "Pendulum-v1"',
        "environments must be a list of strings, got 'Pendulum-v1': write ['Pendulum-v1']",
    ),
    ("utd = [1, 2]", "utd = 2", "grid.utd must be a list of values, got 2: write [2]"),
    ("utd = [1, 2]", "utd = [1, 1.0]", "grid.utd has 1.0 twice: name each once"),
    ("utd = [1, 2]", 'utd = [1, "2"]', "each value of grid.utd must be a finite number, got '2'"),
    ("utd = [1, 2]", "utd = [1, 0.3]", "utd 0.3 with 1 environment makes 0.3 updates a tick"),
    (SETTING, "learning_starts = 0.5", "settings.learning_starts must be a whole number, got 0.5"),
    (SETTING, "learning_starts = false", "settings.learning_starts must be a whole number, got False"),
    (SETTING, "learning_starts = 0", "learning_starts must be >= 1, got 0"),
    (SETTING, "capacity = 0", "capacity must be at least num_envs, 1, got 0"),
    (SETTING, "n_step = 0", "n_step must be >= 1, got 0"),
    (SETTING, "n_step = 200\ncapacity = 150", "n_step must be in 1..150, the capacity, got 200"),
    (SETTING, "widths = []", "settings.widths is empty: a network has at least one hidden layer"),
    (SETTING, "widths = [0]", "settings.widths must be in 1..65,536, got 0"),
    (SETTING, "target_noise = -1", "settings.target_noise must be >= 0, got -1"),
    (SETTING, "actor_lr = 1e39", "settings.actor_lr must be 0 or between 1.2e-38 and 3.4e+38 in size, got 1e+39"),
    (SETTING, "keep_checkpoints = 301", "keep_checkpoints must be at most the run's 300 steps, got 301"),
    (SETTING, 'remedy = ["redo", "redo"]', "remedy redo is given 2 times: give it once"),
    (SETTING, "utd = 3", "utd is in settings and in the grid, which would replace it: leave one out"),
    (SETTING, "actor_lr = nan", "settings.actor_lr must be a finite number, got nan"),
    (SETTING, "sticky = 1", "settings.sticky must be true or false, got 1"),
    (SETTING, "sticky = true", "sticky is for Atari, and Pendulum-v1 is not"),
    (SETTING, "widths = 16", "settings.widths must be a list of whole numbers, got 16: write [16]"),
    (SETTING, 'on_nan = "stop"', "settings.on_nan must be one of halt, skip, got 'stop'"),
    (SETTING, "seed = 3", "settings.seed is no setting: a plan gives it as seeds"),
    (
        SETTING,
        "learnin_starts = 3",
        "with _ for -; did you mean learning_starts?",
    ),
    (SETTING, 'remedy = ["rest"]', "remedy must be one of regrama, redo"),
    (SETTING, 'remedy = "redo"', "must be a list of strings, got 'redo': write ['redo']"),
    (SETTING, "redo_tau = 0.1", "redo_tau is for remedy redo, which is not asked for"),
    (
        UNIFORM,
        'uniform = { replay = "unifrom" }',
        "there is no replay 'unifrom': choose from",
    ),
    (UNIFORM, 'uniform = { replay = "nowhere:Mine" }', "No module named 'nowhere'"),
    (
        UNIFORM,
        'uniform = { replay = "broken_module:Mine" }',
        "ZeroDivisionError: division by zero",
    ),
    (
        UNIFORM,
        "uniform = { utd_ = 2 }",
        "with _ for -; did you mean utd?",
    ),
    (UNIFORM, 'uniform = "uniform"', "methods.uniform must be a table, got 'uniform'"),
    (UNIFORM, 'uniform = { preset = "simba" }', "methods.uniform.preset must be one of swd-paper"),
    (UNIFORM, "uniform = { preset = 3 }", "methods.uniform.preset must be a string, got 3"),
    (
        UNIFORM,
        "uniform = { decay_steps = 9 }",
        "replay uniform has no decay_steps: it takes no numbers",
    ),
    (
        SWD,
        '"swd, short" = { replay = "swd", decay_steps = "100" }',
        """methods."swd, short".decay_steps must be a finite number or one of auto, drift, got '100'""",
    ),
    (
        SWD,
        '"swd, short" = { replay = "swd", decay_tau = 2 }',
        "replay swd has no decay_tau: it takes decay_steps, min_weight, decay_fraction (method swd, short, utd 1)",
    ),
    (
        SWD,
        "again = {}",
        "the methods uniform, utd 1 and again, utd 1 have the same",
    ),
    ('agent = "td3"', 'agent = "ppo"', "agent must be one of td3, sac, ddqn, got 'ppo'"),
    ('agent = "td3"', 'agent = "td3"\npreset = "simba"', "preset must be one of swd-paper"),
    ('title = "Two replays"', "title = 3", "title must be a string, got 3"),
    ('title = "Two replays"', 'title = "x"\nclaims = 3', "claims must be a list of tables, got 3"),
    (
        'title = "Two replays"',
        'title = "x"\nclaims = [{ method = "a", effect = "0.1" }]',
        "claims[0].effect must be a finite number, got '0.1'",
    ),
    ('title = "Two replays"', 'title = "x"\ncolour = 3', "it has colour, which no plan has"),
]


@pytest.mark.parametrize(("statement", "instead", "message"), WRONG)
def test_a_wrong_value_is_one_sentence_with_its_line(
    statement: str,
    instead: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "mine.toml"
    assert statement in GOOD
    path.write_text(GOOD.replace(statement, instead))
    line = LINES[statement] + instead.count("\n") - statement.count("\n")
    if message.startswith("the methods "):
        line = LINES["[methods]"]
    elif "in the grid" in message:
        line = LINES["utd = [1, 2]"]
    elif "\ncapacity" in instead:
        line -= 1
    assert main(["sweep", str(path), "--out", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"neoteny sweep: {path}, line {line}: "), said
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_plan_that_lacks_something_has_no_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace("steps = 300", "").replace("seeds = [1, 2]", ""))
    with pytest.raises(UsageError, match=r"mine[.]toml: it lacks steps, seeds: every plan has title, agent"):
        load_plan(str(path))
    path.write_bytes(b"title = '\xff'")
    with pytest.raises(UsageError, match=r"mine[.]toml, line 1: the byte 0xff is not UTF-8"):
        load_plan(str(path))
    path.write_text('title = "x"\nincludes = "swd/fig2"\n')
    with pytest.raises(UsageError, match="line 2: includes must be a list of strings, got 'swd/fig2'"):
        load_plan(str(path))


def test_both_scales_are_checked_and_the_line_is_of_the_part_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + '[laptop]\nreduced = "shorter"\nsteps = -5\nsettings = { widths = [0.5] }\n')
    begins = len(GOOD.split("\n"))
    for scale in ("full", "laptop"):
        with pytest.raises(UsageError, match=f"line {begins + 2}: steps must be >= 1, got -5"):
            load_plan(str(path), scale)
    path.write_text(path.read_text().replace("steps = -5", "steps = 5"))
    with pytest.raises(UsageError, match=f"line {begins + 3}: settings.widths must be a list of whole numbers"):
        load_plan(str(path), "laptop")
    path.write_text(path.read_text().replace("seeds = [1, 2]", "seeds = 4").replace("0.5", "5"))
    with pytest.raises(UsageError, match=f"line {LINES['seeds = [1, 2]']}: seeds must be a list"):
        load_plan(str(path), "laptop")


def test_whole_numbers_may_be_written_with_an_exponent(tmp_path: Path) -> None:
    """1e6 is TOML's float, and what a person means by it is a whole number."""
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    plain = load_plan(str(path)).runs
    path.write_text(
        GOOD.replace("steps = 300", "steps = 3e2").replace("learning_starts = 100", "learning_starts = 1e2")
    )
    assert [run.config for run in load_plan(str(path)).runs] == [run.config for run in plain]
    assert [run.directory for run in load_plan(str(path)).runs] == [run.directory for run in plain]


def test_a_grid_of_names_and_lists_names_its_methods() -> None:
    data: dict[str, Any] = {"title": "x", "agent": "td3", "environments": ["Pendulum-v1"], "steps": 9, "seeds": [1]}
    grid = {"replay": ["uniform", "swd"], "widths": [[8], [8, 8]]}
    methods = [run.method for run in make_plan("p", {**data, "methods": {"a": {}}, "grid": grid}).runs]
    assert methods[0] == "a, replay uniform, widths 8"
    assert methods[3] == "a, replay swd, widths 8 8"


TEXT = '''# a comment = 1
title = """
steps = 3
"""

environments = [  # of two
  "a # [b]",
  "c",
]
settings = { utd = 2, widths = [1, 2] }
laptop.steps = 5

[methods]
"with = and \\"quotes\\"" = { replay = "swd" }

[[claims]]
effect = 1

[[claims]]  # the second
effect = 2

[ laptop . methods ]
a = {}'''


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("title",), 2),
        (("steps",), None),
        (("environments",), 6),
        (("settings", "widths"), 10),
        (("laptop", "steps"), 11),
        (("methods",), 13),
        (("methods", 'with = and "quotes"', "replay"), 14),
        (("claims", 0, "effect"), 17),
        (("claims", 1), 19),
        (("claims", 1, "effect"), 20),
        (("laptop", "methods", "a"), 23),
        (("claims", 2), None),
    ],
)
def test_the_line_of_a_key(keys: tuple[str | int, ...], line: int | None) -> None:
    assert line_of(TEXT, keys) == line
    assert line_of(TEXT.replace("\n", "\r\n"), keys) == line


def test_keys_are_written_as_toml_does() -> None:
    assert dotted(("methods", "swd + redo", "utd")) == 'methods."swd + redo".utd'
    assert dotted(("claims", 1, "effect")) == "claims[1].effect"


@pytest.mark.parametrize(
    ("value", "kind", "result"),
    [
        (3, int, 3),
        (3.0, int, 3),
        (3, float, 3),
        (None, float | None, None),
        (2.5, int | float, 2.5),
        ([1, 2.0], tuple[int, ...], (1, 2)),
        ({"a": 1.0}, dict[str, int], {"a": 1}),
        ("cpu", Literal["cpu", "gpu"], "cpu"),
        (b"", bytes, b""),
    ],
)
def test_what_fits(value: Any, kind: Any, result: Any) -> None:
    got = fitted(value, kind)
    assert got == result
    assert type(got) is type(result)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (True, int, "must be a whole number, got True"),
        (float("inf"), int, "must be a whole number, got inf"),
        (float("nan"), float | None, "must be a finite number, got nan"),
        (1, bool, "must be true or false, got 1"),
        ([1, "2"], tuple[int, ...], "must be a list of whole numbers, got \\[1, '2'\\]"),
        ("tpu", Literal["cpu", "gpu"], "must be one of cpu, gpu, got 'tpu'"),
        ([], dict[str, int], "must be a table, got \\[\\]"),
    ],
)
def test_what_does_not_fit(value: Any, kind: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fitted(value, kind)
