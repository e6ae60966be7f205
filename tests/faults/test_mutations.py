"""Files of every kind, damaged in every way that we could think of, under every command that reads them.

Each mutation has a number, which with one seed decides all of it: the kind of file, the command, the damage. A failing
one says what it was, and runs alone as ``pytest "tests/faults/test_mutations.py::test_a_mutation[17]"``. `mutating.py`
has the kinds of damage, `mutating_files.py` the files, `mutating_commands.py` the commands and `mutating_judge.py`
the judgement. All run in one process after another,
so that a crash by a signal and a hang are seen, too, and fail the mutation that they came with.

Every outcome must be one of these:

- *right*: exit status 0, and in substance the result of the undamaged file: the digests of the final state and every
  line of metrics after a resume, every printed number, every table of a report, every byte of an archive.
- *refused*: exit status 2 and one sentence on standard error. A sweep that cannot carry out a run goes on with the
  others, so it names the run and the reason among its results, and ends with one sentence and exit status 1.
- *said*: exit status 0 and another result, which the command itself declares. There are four. A run without DONE is not
  finished: it counts as such in a report, is left out of an archive, and the command says so; a sweep finishes it. A
  checkpoint that cannot be used is named by `inspect`, which then gives the digests of the one before, with its step.
  Timing that cannot be trusted is left out of a report or an archive, with a note. And whoever deletes one of
  several archives, or of several evaluations.npz, has one run less, which nothing can tell from one never made.

What is a silent change of a result depends on who wrote the file. What Neoteny wrote is a record: no value of it may
change unnoticed if the change has an effect. What a person wrote is an input: a CSV with another return in it is just
another CSV. So where an input is accepted, it is read a second time by a few lines of our own, which refuse what is
ambiguous (a line with too many fields, an evaluation that is there twice, a key that no plan has), and written anew in
the plainest form. The command must give the same result for both. If our reading refuses the file, the command must.

A *forged* file is one that was changed and then given the checksum that fits, as a stranger could. No checksum can
notice that, so only harm is judged: it must not end in a traceback, a crash or a hang, and not touch a file elsewhere.

No file may be changed through a symbolic link: what links lead to is compared before and after. Permissions are not
tested, since tests may run as root, who may read everything.
"""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

GUARD = 300
"""Seconds after which a mutation hangs. One takes about a second; no test says that it must be fast."""
USUAL, LONG = 150, 1_000
"""Mutations in `make test`, and in `make test-long`, which goes on where the first end."""


class Worker:
    """The process that judges, started again whenever it dies."""

    def __init__(self, world: Path) -> None:
        self._world = world
        self._process: subprocess.Popen[str] | None = None
        self.counts: Counter[str] = Counter()

    def judge(self, number: int) -> dict[str, str]:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            answered = selector.select(GUARD)
        answer = process.stdout.readline() if answered else ""
        if not answer:
            self.close()
            died = f"wrong: it died by {_named(process.returncode)}" if answered else f"wrong: no end after {GUARD} s"
            return {"verdict": died, "about": f"mutation {number}", "said": _tail(self._world.parent / "log.txt")}
        return json.loads(answer)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("mutating_judge.py")), str(self._world)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _named(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-3_000:] if path.exists() else ""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    started = Worker(tmp_path_factory.mktemp("mutations") / "world")
    yield started
    started.close()


@pytest.fixture
def hold(worker: Worker, record_property: Callable[[str, object], None]) -> Callable[[int], None]:
    """What must hold of a mutation."""

    def check(number: int) -> None:
        judgement = worker.judge(number)
        worker.counts[judgement["verdict"].split(":")[0]] += 1
        assert not judgement["verdict"].startswith("wrong"), (
            f"{judgement['about']}: {judgement['verdict']}\n{judgement['said']}"
        )
        if number in (USUAL - 1, USUAL + LONG - 1):
            counts = ", ".join(f"{count} {verdict}" for verdict, count in worker.counts.most_common())
            record_property("measured", f"mutations up to {number}: {counts}")

    return check


@pytest.mark.slow
@pytest.mark.parametrize("number", range(USUAL))
def test_a_mutation(hold: Callable[[int], None], number: int) -> None:
    hold(number)


@pytest.mark.long
@pytest.mark.parametrize("number", range(USUAL, USUAL + LONG))
def test_another_mutation(hold: Callable[[int], None], number: int) -> None:
    hold(number)
