"""Hostile plans: each is accepted and makes sense, or is one sentence with the file and the line; nothing starts."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from neoteny.cli import main
from neoteny.experiments.checking import settings_of
from neoteny.experiments.plan import load_plan

TOP = {
    "title": '"Two replays"',
    "paper": '"nothing"',
    "agent": '"td3"',
    "preset": '"swd-paper"',
    "environments": '["Pendulum-v1"]',
    "steps": "300",
    "seeds": "[1, 2]",
    "settings": "{ learning_starts = 100, capacity = 1000 }",
    "methods": '{ uniform = {}, swd = { replay = "swd", decay_steps = 100 } }',
    "grid": "{ utd = [1, 2] }",
    "claims": '[{ method = "swd, utd 1", baseline = "uniform, utd 1" }]',
    "laptop": "{ steps = 200 }",
}
"""A plan that is right, key by key."""
LITERALS = [
    *("nan", "inf", "-inf", "1e400", "1e308", "-1e308", "1e39", "1e-320", "-0.0", "0", "-1", "0.5", "1", "7.0"),
    *("4294967296", "9223372036854775808", "-9223372036854775809", "1" + "0" * 400, "9" * 5_000, "0x" + "f" * 5_000),
    *("true", "false", "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", '""', '"x"', '"nan"', '"true"', '"2"'),
    *(
        r'"a\u0000b"',
        r'"a\nb"',
        r'"\u001b[2J"',
        r'"\u2028"',
        '"' + "x" * 100_000 + '"',
        '"\u202e\u2066"',
        '"\U0001f9ec \u00e9"',
    ),
    *("[]", "[[]]", "[nan]", "[true]", '[""]', '["x", "x"]', "[1, 1.0]", "[1, 'x']", "[{}]", "[1979-05-27]", "[-5]"),
    *("{}", "{ a = 1 }", "{ x = {} }", "{ a = { b = { c = { d = {} } } } }", "{ '' = {} }", "{ steps = [] }"),
    *("[" * 60 + "]" * 60, "[" * 3_000 + "]" * 3_000, "{a=" * 400 + "1" + "}" * 400, "{ " + "a." * 3_000 + "a = 1 }"),
    *(
        "[0]",
        "[0.5]",
        "[10000000000]",
        '["Pendulum-v1", "Pendulum-v1"]',
        "[" + ", ".join(map(str, range(20_000))) + "]",
    ),
]
FINE = {
    "title": {'"x"', '"nan"', '"true"', '"2"', '"\U0001f9ec \u00e9"'},
    "paper": {'""', '"x"', '"nan"', '"true"', '"2"', '"\U0001f9ec \u00e9"'},
    "steps": {"1", "7.0"},
    "seeds": {"[0]"},
    "settings": {"{}"},
    "methods": {"{ x = {} }"},
    "grid": {"{}"},
    "claims": {"[]"},
    "laptop": {"{}"},
}
"""What may be accepted after all; every other literal is wrong, whatever the key."""
UNSET = ("preset", "paper", "settings", "grid", "claims", "laptop")
"""Keys that a plan need not have."""


def text_of(statements: dict[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in statements.items())


def said_of(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """What a dry run of the plan comes to, and what it says if it is refused."""
    status = main(["sweep", str(path), "--dry-run", "--out", str(path.parent / "runs")])
    return status, capsys.readouterr().err


def check(path: Path, status: int, said: str, what: str, line: int | None = None) -> bool:
    """Whether the plan was accepted; that it was so, or refused, as it should."""
    assert not (path.parent / "runs").exists(), what
    if status == 0:
        assert not said, what
        for scale in ("full", "laptop") if "\nlaptop = { steps = 200 }" in path.read_text() else ("full",):
            assert_makes_sense(load_plan(str(path), scale), what)
        return True
    assert status == 2, (what, said)
    assert said.startswith(f"neoteny sweep: {path}"), (what, said[:300])
    assert said.count("\n") == 1, (what, said[:300])
    assert len(said) < 600, (what, len(said))
    assert all(character.isprintable() for character in said.rstrip("\n")), (what, said)
    if line is not None:
        assert f"line {line}" in said, (what, said[:300])
    return False


def assert_makes_sense(plan: Any, what: str) -> None:
    """A plan whose runs are numbers that one can run with, and whose names are a person's."""
    assert 1 <= len(plan.runs) <= 10_000, what
    assert len({run.directory for run in plan.runs}) == len(plan.runs), what
    assert len({(run.method, run.config.env, run.config.seed) for run in plan.runs}) == len(plan.runs), what
    for run in plan.runs:
        assert run.method.strip(), what
        assert 1 <= run.config.total_timesteps < 2**32, what
        assert 0 <= run.config.seed < 2**32, what
        for part in (run.config, run.config.agent, run.config.replay, run.config.plasticity):
            for name, value in vars(part).items():
                assert_a_sane_number(name, value, what)
    for claim in plan.claims or ():
        assert claim.method != claim.baseline, what


SIGNED = ("target_entropy", "log_std_min", "log_std_max")


def assert_a_sane_number(name: str, value: Any, what: str) -> None:
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, (int, float)) and not isinstance(one, bool):
            assert math.isfinite(one), what
            assert abs(one) < 3.5e38, what
            assert one >= 0 or name in SIGNED, what
            if name in ("widths", "batch_size", "num_envs", "cnn_width", "actor_width", "critic_width"):
                assert 1 <= one <= 2**20, what


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run that measures nothing: no process is started."""
    monkeypatch.setattr("neoteny.experiments.estimate.seconds", lambda *_: 1.0)


@pytest.mark.parametrize("key", TOP)
def test_any_value_for_any_key(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text_of(TOP))
    assert check(path, *said_of(path, capsys), "the plan as it is")
    for literal in LITERALS:
        what = f"{key} = {literal[:60]}"
        statements = {**TOP, key: literal}
        if key in ("methods", "grid"):
            del statements["claims"]  # they would name methods that there are not
        if key == "settings":
            statements["laptop"] = "{ steps = 200 }"
        path.write_text(text_of(statements))
        number = list(statements).index(key) + 1
        accepted = check(path, *said_of(path, capsys), what, number)
        assert accepted == (literal in FINE.get(key, ())), what
    statements = {name: value for name, value in TOP.items() if name != key}
    if key == "grid":
        del statements["claims"]
    path.write_text(text_of(statements))
    assert check(path, *said_of(path, capsys), f"no {key}") == (key in UNSET)


def settings(rng: random.Random, count: int) -> Iterator[tuple[str, str, str, Any]]:
    """A setting of an agent with a literal, in one of the tables where it can be, and its annotation."""
    for _ in range(count):
        agent = rng.choice(["td3", "sac"])
        takes = settings_of(agent)
        name = rng.choice([*takes, "env", "total_timesteps", "seed", "colour", "__class__"])
        yield agent, name, rng.choice(LITERALS), takes.get(name)


@pytest.mark.parametrize("place", ["settings", "methods", "grid", "laptop"])
def test_any_value_for_any_setting(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    rng = random.Random(19)
    verdicts = []
    for agent, name, literal, kind in settings(rng, 480 if place == "grid" else 120):  # few lists are right
        value = f"[1, {literal}]" if place == "grid" and rng.random() < 0.5 else literal
        inner = f"{{ {name} = {value} }}"
        statements = {
            **TOP,
            "agent": f'"{agent}"',
            place: {"methods": f"{{ a = {inner} }}", "laptop": f"{{ settings = {inner} }}"}.get(place, inner),
        }
        del statements["claims"]
        if place != "grid":
            del statements["grid"]
        path.write_text(text_of(statements))
        what = f"{agent}, {place}.{name} = {value[:60]}"
        accepted = check(path, *said_of(path, capsys), what)
        verdicts.append(accepted)
        if accepted:
            assert kind is not None, what
            assert not any(word in literal for word in ("nan", "inf", "1979", "07:32", "{", "[[")) or "'" in literal, (
                what
            )
            assert not (literal in ("true", "false") and bool not in (kind, *get_args(kind))), what
    assert 0 < sum(verdicts) < len(verdicts) / 2


GOOD = text_of(TOP).encode()


def counting(first: int, last: int) -> str:
    return ", ".join(map(str, range(first, last + 1)))


FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it lacks title, agent, environments, steps, seeds, methods"),
    "latin-1": (GOOD.replace(b"nothing", b"caf\xe9"), "line 2: the byte 0xe9 is not UTF-8"),
    "UTF-16": (GOOD.decode().encode("utf-16"), "line 1: the byte 0xff is not UTF-8"),
    "binary": (bytes(range(256)), "the byte 0x80 is not UTF-8"),
    "zeros": (b"\0" * 2_000_000, "has more than 1,000,000 bytes"),
    "cut short": (GOOD[:-5], "is not TOML"),
    "a key twice": (GOOD + b"steps = 3\n", "Cannot overwrite a value (at line 13, column 10)"),
    "a method twice": (GOOD + b"[methods.swd]\n", "is not TOML"),
    "a key without end": (b"x" * 9_000 + b" = 1\n" + GOOD, "line 1: a key in it has 9,000 characters"),
    "a header without end": (GOOD + b"[" + b"a." * 900 + b"a]\n", "line 13: a is nested too deeply"),
    "a thousand unknown keys": (
        b"".join(b"key_%d = 1\n" % number for number in range(1_000)) + GOOD,
        "line 1: it has key_0, key_1, key_2, key_3, key_4, key_5, key_6, key_7 and 992 more, which no plan has",
    ),
    "a billion runs": (
        GOOD.replace(b"utd = [1, 2]", f"batch_size = [{counting(1, 2_000)}], widths = [[1], [2]]".encode())
        .replace(b"[1, 2]", f"[{counting(0, 4_999)}]".encode())
        .replace(b"uniform = {}", f"uniform = {{}}{''.join(f', u{n} = {{}}' for n in range(98))}".encode()),
        "line 7: it makes 2,000,000,000 runs (5,000 of seeds, 100 of methods, 2,000 of grid.batch_size, 2 of "
        "grid.widths): a plan has at most 10,000",
    ),
    "a value that the grid replaces": (
        GOOD.replace(b"uniform = {}", b"uniform = { utd = 5 }"),
        "line 10: utd is in methods.uniform and in the grid, which would replace it: leave one out",
    ),
    "a claim of a method on itself": (
        GOOD.replace(b'"uniform, utd 1"', b'"swd, utd 1"'),
        "line 11: it compares 'swd, utd 1' with itself: name another baseline",
    ),
    "a claim of nothing": (
        GOOD.replace(b'baseline = "uniform, utd 1"', b"lower = true"),
        "line 11: a claim has method and baseline, and may have",
    ),
    "a claim of a method that there is not": (
        GOOD.replace(b'"uniform, utd 1"', b'"uniform"'),
        "line 11: it claims something of 'uniform'; its methods are uniform, utd 1, uniform, utd 2, swd, utd 1",
    ),
    "a replay that ends the process": (
        GOOD.replace(b'replay = "swd", decay_steps = 100', b'replay = "sys:exit"'),
        "line 9: replay sys:exit: SystemExit",
    ),
    "an environment that there is not": (GOOD.replace(b"Pendulum-v1", b"../../etc/passwd"), "line 5: "),
}


@pytest.mark.parametrize("kind", FILES)
def test_any_file(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = FILES[kind]
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    status, said = said_of(path, capsys)
    assert not check(path, status, said, kind)
    assert message in said


def test_what_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder.toml").mkdir()
    for name, message in {
        str(tmp_path / "folder.toml"): "folder.toml is a directory: name a .toml file, or a plan of ours",
        str(tmp_path / "none.toml"): "none.toml: name a .toml file that is there, or a plan of ours",
        "x" * 5_000: "there is no plan 'xxx",
        "a\0b.toml": "there is no file",
    }.items():
        assert main(["sweep", name, "--dry-run"]) == 2
        assert message in (said := capsys.readouterr().err)
        assert said.count("\n") == 1


def test_windows_writes_a_mark_before_the_first_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n"))
    assert check(path, *said_of(path, capsys), "a byte order mark")


def test_names_of_a_grid_tell_its_values_apart(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        text_of({**TOP, "grid": "{ capacity = [1234567, 1234568, 1e6] }", "settings": "{}", "claims": "[]"})
    )
    assert list(dict.fromkeys(run.method for run in load_plan(str(path)).runs))[:3] == [
        "uniform, capacity 1234567",
        "uniform, capacity 1234568",
        "uniform, capacity 1e+06",
    ]


def test_a_long_plan_is_read_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line of an error is found without reading the file once for each of its lines."""
    path = tmp_path / "mine.toml"
    path.write_text(text_of(TOP) + "# a comment\n" * 40_000 + "colour = 3\n")
    assert not check(path, *said_of(path, capsys), "a long plan", 40_013)


def test_plans_that_include_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.toml"
    (tmp_path / "good.toml").write_bytes(GOOD)
    (tmp_path / "wrong.toml").write_bytes(GOOD.replace(b"steps = 300", b"steps = 0"))
    (tmp_path / "renamed.toml").write_bytes(GOOD.replace(b"uniform", b"baseline"))
    for one, other in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{one}.toml").write_text(f'title = "{one}"\nincludes = ["./{other}.toml"]\n')
    for level in range(9):
        (tmp_path / f"level{level}.toml").write_text(f'title = "x"\nincludes = ["level{level + 1}.toml"]\n')
    for includes, message in {
        '["mine.toml"]': f"{path}, line 2: a plan cannot include itself: mine.toml includes mine.toml",
        '["a.toml"]': "./c.toml, line 2: a plan cannot include itself: a.toml includes b.toml includes c.toml includes",
        '["level0.toml"]': "line 2: more than 5 plans include each other",
        "[]": "line 2: includes is empty: it must hold at least one",
        "3": "line 2: includes must be a list of strings, got 3",
        "[true]": "line 2: includes must be a list of strings, got [True]",
        '["good.toml", "good.toml"]': "line 2: includes has 'good.toml' twice: name each once",
        '["nowhere.toml"]': "line 2: it includes 'nowhere.toml', and there is no file nowhere.toml",
        '["."]': "line 2: it includes '.', and . is a directory",
        '["wrong.toml"]': "wrong.toml, line 6: steps must be >= 1, got 0",
        '["good.toml", "renamed.toml"]': "line 2: two plans have the same run under different names: good.toml "
        "calls it uniform, utd 1 and renamed.toml baseline, utd 1",
        '["good.toml"]\nsteps = 3': "line 3: it includes other plans, so it has only a title",
        '["good.toml"]\nclaims = [{ method = "x", baseline = "y" }]': "line 3: it claims something of 'x'",
    }.items():
        path.write_text(f'title = "x"\nincludes = {includes}\n')
        assert main(["sweep", str(path), "--dry-run"]) == 2
        assert message in (said := capsys.readouterr().err), said
        assert said.count("\n") == 1
    path.write_text('includes = ["good.toml"]\n')
    assert main(["sweep", str(path), "--dry-run"]) == 2
    assert "mine.toml: title is empty: say in a few words what the plan asks" in capsys.readouterr().err


def test_plans_that_share_runs_count_them_once(tmp_path: Path) -> None:
    """Also where each includes two that both include the same two, so that there are many ways to the last."""
    for name in ("a5", "b5"):
        (tmp_path / f"{name}.toml").write_bytes(GOOD)
    for level in range(1, 5):
        for name in "ab":
            text = f"includes = ['{tmp_path}/a{level + 1}.toml', '{tmp_path}/b{level + 1}.toml']\ntitle = 'x'\n"
            (tmp_path / f"{name}{level}.toml").write_text(text)
    plan = load_plan(str(tmp_path / "a1.toml"))
    assert len(plan.runs) == 8
    assert len(plan.claims or ()) == 1
    assert_makes_sense(plan, "shared")
