"""Ways to damage a file, seeded."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

Mutation = Callable[[Path, random.Random], None]


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(1, path.stat().st_size)])


def delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def directory(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def not_utf8(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    at = rng.randrange(len(data))
    path.write_bytes(data[:at] + b"\xff" + data[at:])


def duplicate_line(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    at = rng.randrange(len(lines))
    path.write_bytes(b"".join([*lines[:at], lines[at], *lines[at:]]))


def rename_key(path: Path, rng: random.Random) -> None:
    _replace_one(path, rng, rb'"[\w/.]+":', b'"renamed":')


def number_by(value: bytes) -> Mutation:
    def mutation(path: Path, rng: random.Random) -> None:
        _replace_one(path, rng, rb"(?<=[ \[])-?\d[\d.e+-]*", value)

    mutation.__name__ = f"number_by_{value.decode()}"
    return mutation


def _replace_one(path: Path, rng: random.Random, pattern: bytes, by: bytes) -> None:
    data = path.read_bytes()
    found = rng.choice(list(re.finditer(pattern, data)))
    path.write_bytes(data[: found.start()] + by + data[found.end() :])


ANY: tuple[Mutation, ...] = (flip, truncate, delete, empty, directory, not_utf8)
"""For any file."""
VALUES = tuple(number_by(value) for value in (b"NaN", b'"text"', b"null", b"1" + b"0" * 400, b"-7", b"[[[]]]", b"3"))
TEXT: tuple[Mutation, ...] = (*ANY, duplicate_line, rename_key, *VALUES)
"""For JSON, and lines of it."""
