"""One mutation at a time, judged: the worker process of test_mutations.py, which says what is right.

It makes a small world of files once, then reads numbers of mutations from its standard input and answers each with a
line of JSON. Each mutation has a copy of the world, in which the command runs: so every path that a command prints is
the same, damaged or not.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mutating import Mutator, Place
from mutating_commands import COMMANDS, Outcome, stand_in
from mutating_files import KINDS, make_world, sha256

SEED = 19
CASES = [(kind, name) for kind, target in KINDS.items() for name in target.commands]


def choice(number: int) -> tuple[str, str, Mutator, random.Random]:
    """What mutation `number` is: the kind of file, the command, the mutator and the generator of the rest.

    Numbers go through all kinds and commands in turn, and for each through all mutators in an order of its own.
    """
    kind, name = CASES[number % len(CASES)]
    mutators = list(KINDS[kind].mutators)
    random.Random(f"{SEED} {kind} {name}").shuffle(mutators)
    return kind, name, mutators[number // len(CASES) % len(mutators)], random.Random(f"{SEED} {number}")


@contextlib.contextmanager
def _copy(world: Path, name: str) -> Iterator[Path]:
    """A copy of the world, in which we then are, and a folder outside of it."""
    copy, outside = world.parent / name / "world", world.parent / name / "outside"
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(world, copy)
    outside.mkdir()
    try:
        with contextlib.chdir(copy):
            yield outside
    finally:
        shutil.rmtree(copy.parent)


def _listing(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()
    }


class Judge:
    """Judges mutations of one world; what commands do in the undamaged world is found out once for each."""

    def __init__(self, world: Path) -> None:
        self._world = world
        self._right: dict[str, Outcome] = {}

    def right(self, name: str) -> Outcome:
        """The outcome of a command in the undamaged world."""
        if name not in self._right:
            with _copy(self._world, "right"):
                outcome = COMMANDS[name]()
            assert outcome.status == 0, f"{name} fails in the undamaged world: {outcome.err}"
            self._right[name] = outcome
        return self._right[name]

    def judge(self, number: int) -> dict[str, str]:
        """What came of a mutation: "right", "said" or "refused", or what is wrong, and the details."""
        kind, name, mutator, rng = choice(number)
        target = KINDS[kind]
        right = self.right(name)
        with _copy(self._world, "mutated") as outside:
            path, other = rng.choice(target.files())
            did = mutator(path, rng, Place(other, outside))
            if target.forge is not None:
                target.forge(path)
            beyond = _listing(outside)
            kept = Path("damaged")
            if path.is_file():
                shutil.copy(path, kept)
            got = COMMANDS[name]()
            verdict = verdict_of(got, right)
            if _listing(outside) != beyond:
                verdict = "wrong: it changed files outside, through a symbolic link"
            elif target.forge is not None and verdict in ("another result", "wrong: exit status 1"):
                verdict = "forged"
            elif verdict == "another result" and did == "deleted" and kind in ("archive", "evaluations.npz"):
                verdict = "said"
            elif verdict == "another result" and target.reading is not None:
                verdict = self._as_read(target.reading, name, path, kept, got)
            elif verdict == "another result":
                verdict = "said" if stated(kind, name, got, right) else "wrong: another result, without a word"
        about = f"mutation {number}: {path}: {mutator.__name__}: {did}; neoteny {name}"
        return {
            "verdict": verdict,
            "case": f"{kind} / {name}",
            "about": about,
            "said": f"{got.out}\n{got.err}"[-6_000:],
        }

    def _as_read(self, reading: Callable[[Path], None], name: str, path: Path, kept: Path, got: Outcome) -> str:
        """An input: its result must be that of the same data, written plainly by another reader."""
        try:
            if kept.exists():
                shutil.copy(kept, path)
            reading(path)
        except Exception as error:
            return f"wrong: accepted, though it is broken ({type(error).__name__}: {str(error)[:200]})"
        plain = COMMANDS[name]()
        return "right" if plain.status == 0 and plain.result == got.result else "wrong: not what the file says"


def verdict_of(got: Outcome, right: Outcome) -> str:
    """What kind of outcome this is."""
    if got.status is None or "Traceback" in got.err:
        return "wrong: a traceback"
    if got.status == 0:
        return "right" if got.result == right.result else "another result"
    *before, last = got.err.rstrip("\n").split("\n")
    if got.status == 1 and "failed: " in got.out and last.startswith(("neoteny sweep: ", "neoteny reproduce: ")):
        return "refused"  # a sweep goes on with its other runs, and says at its end which failed and why
    if got.status != 2:
        return f"wrong: exit status {got.status}"
    if not last.startswith("neoteny ") or any(line.startswith("neoteny ") for line in before) or len(last) > 2_000:
        return "wrong: not one sentence"
    return "refused"


def _untimed(result: Any) -> Any:
    """A report without its note and table about timing, or archives without what they say of it and the seals."""
    if isinstance(result, list):
        said, tables = result
        rest = {name: text for name, text in tables.items() if "cost" not in name}
        return [line for line in said.split("\n") if "timing" not in line], rest
    archives = {name: [json.loads(line) for line in text.splitlines()] for name, text in result.items()}
    own = ("timing", "checksum", "of")
    return {
        path: [{key: value for key, value in line.items() if key not in own} for line in lines]
        for path, lines in archives.items()
    }


def stated(kind: str, name: str, got: Outcome, right: Outcome) -> bool:
    """Whether another result is one that the command itself declares; test_mutations.py says which and why."""
    said = got.out + got.err
    if kind == "DONE" and name == "inspect":
        return {**got.result, "done": True} == right.result
    if kind == "DONE":
        return "not finished" in said.lower() or "3 of 4" in said  # as claims says it
    if kind == "timing.jsonl":
        return "timing" in said and _untimed(got.result) == _untimed(right.result)
    if name == "inspect" and got.result["checkpoint"]:
        rest = {**got.result, "checkpoint": None} == {**right.result, "checkpoint": None}
        checkpoint = got.result["checkpoint"]
        return rest and (bool(checkpoint["damaged"]) or checkpoint["step"] < right.result["checkpoint"]["step"])
    return False


def work(world: Path) -> None:
    """Answer numbers with verdicts until the input ends."""
    os.environ["PJRT_NPROC"] = "1"  # as the plan's runs have it: no command sets it once another has computed
    answers = os.fdopen(os.dup(1), "w")
    log = os.open(world.parent / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):  # what libraries print is no answer
        os.dup2(log, stream)
    if not world.exists():  # else a worker before this one made it
        making = world.with_name("making")
        shutil.rmtree(making, ignore_errors=True)
        make_world(making)
        making.rename(world)
    stand_in()
    judge = Judge(world)
    for line in sys.stdin:
        answers.write(json.dumps(judge.judge(int(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    work(Path(sys.argv[1]).resolve())
