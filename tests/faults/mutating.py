"""Ways to damage one file, each drawn from a generator, so that a seed gives the same damage again.

A mutator takes the file, a generator and the `Place` around it, changes the file (or what is there in its stead) and
returns what it did in words. It never opens what it has put there: a FIFO would block.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Place:
    """What a mutator may use beside the file itself."""

    other: Path
    """A file of the same kind, which belongs elsewhere."""
    outside: Path
    """A folder that nothing may change: where symbolic links lead."""


Mutator = Callable[[Path, random.Random, Place], str]

# Any file


def flip_bit(path: Path, rng: random.Random, _: Place) -> str:
    return _change_byte(path, rng, lambda byte: byte ^ (1 << rng.randrange(8)))


def change_byte(path: Path, rng: random.Random, _: Place) -> str:
    return _change_byte(path, rng, lambda byte: (byte + rng.randrange(1, 256)) % 256)


def not_utf8(path: Path, rng: random.Random, _: Place) -> str:
    return _change_byte(path, rng, lambda _: 0xFF)


def _change_byte(path: Path, rng: random.Random, change: Callable[[int], int]) -> str:
    data = bytearray(path.read_bytes() or b"\0")
    at = rng.randrange(len(data))
    was, data[at] = data[at], change(data[at])
    path.write_bytes(data)
    return f"byte {at} of {len(data)} from {was:#04x} to {data[at]:#04x}"


def truncate(path: Path, rng: random.Random, _: Place) -> str:
    data = path.read_bytes()
    kept = rng.randrange(len(data)) if data else 0
    path.write_bytes(data[:kept])
    return f"cut from {len(data)} bytes to {kept}"


def extend(path: Path, rng: random.Random, _: Place) -> str:
    more = rng.choice([rng.randbytes(rng.randrange(1, 200)), b"\0" * 4_096, b"{}\n", b"\n\n", path.read_bytes()])
    path.write_bytes(path.read_bytes() + more)
    return f"{len(more)} bytes appended"


def blank_out(path: Path, rng: random.Random, _: Place) -> str:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data) + 1)
    stop = min(len(data), at + 512)
    data[at:stop] = bytes(stop - at)
    path.write_bytes(data)
    return f"bytes {at} to {stop} set to zero, as a disk that lost a block does"


def empty(path: Path, _: random.Random, __: Place) -> str:
    path.write_bytes(b"")
    return "emptied"


def delete(path: Path, _: random.Random, __: Place) -> str:
    path.unlink()
    return "deleted"


def swap(path: Path, _: random.Random, place: Place) -> str:
    mine, others = path.read_bytes(), place.other.read_bytes()
    path.write_bytes(others)
    place.other.write_bytes(mine)
    return f"swapped with {place.other}"


def directory_instead(path: Path, _: random.Random, __: Place) -> str:
    path.unlink()
    path.mkdir()
    return "a directory in its place"


def fifo_instead(path: Path, _: random.Random, __: Place) -> str:
    path.unlink()
    os.mkfifo(path)
    return "a FIFO in its place"


def link_instead(path: Path, _: random.Random, place: Place) -> str:
    shutil.move(path, place.outside / path.name)
    path.symlink_to(place.outside / path.name)
    return "a symbolic link in its place, to the same bytes elsewhere"


def broken_link(path: Path, _: random.Random, place: Place) -> str:
    path.unlink()
    path.symlink_to(place.outside / "nothing")
    return "a symbolic link to nothing in its place"


def linked_folder(path: Path, _: random.Random, place: Place) -> str:
    folder = place.outside / path.parent.name
    shutil.move(path.parent, folder)
    path.parent.symlink_to(folder)
    return f"a symbolic link in place of its folder {path.parent.name}/"


BYTES: list[Mutator] = [flip_bit, change_byte, not_utf8, truncate, extend, blank_out, empty, delete, swap]
BYTES += [directory_instead, fifo_instead, link_instead, broken_link]

# Text


def byte_order_mark(path: Path, _: random.Random, __: Place) -> str:
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    return "a byte order mark in front"


def crlf(path: Path, _: random.Random, __: Place) -> str:
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    return "lines end as on Windows"


def utf16(path: Path, _: random.Random, __: Place) -> str:
    path.write_bytes(path.read_text().encode("utf-16"))
    return "encoded as UTF-16"


def duplicate_line(path: Path, rng: random.Random, _: Place) -> str:
    lines = path.read_bytes().splitlines(keepends=True) or [b""]
    at = rng.randrange(len(lines))
    path.write_bytes(b"".join([*lines[: at + 1], *lines[at:]]))
    return f"line {at + 1} twice"


def drop_line(path: Path, rng: random.Random, _: Place) -> str:
    lines = path.read_bytes().splitlines(keepends=True) or [b""]
    at = rng.randrange(len(lines))
    path.write_bytes(b"".join([*lines[:at], *lines[at + 1 :]]))
    return f"line {at + 1} left out"


def swap_lines(path: Path, rng: random.Random, _: Place) -> str:
    lines = path.read_bytes().splitlines(keepends=True) or [b""]
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    path.write_bytes(b"".join(lines))
    return f"lines {one + 1} and {two + 1} swapped"


TEXT: list[Mutator] = [byte_order_mark, crlf, utf16, duplicate_line, drop_line, swap_lines]

# JSON, and lines of it

HUGE = 10**5_000
"""More digits than Python reads into an integer."""
DEEP = "DEEP"
"""Stands for lists within lists, too many for a recursive reader."""
VALUES = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "a string": "many",
    "null": None,
    "a list": [1, 2],
    "an object": {"a": 1},
    "1e300": 1e300,
    "5,000 digits": HUGE,
    "-1": -1,
    "0.5": 0.5,
    "true": True,
    "64 bits and more": 2**70,
    "deep lists": DEEP,
}


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key of a tree of JSON."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(tree[key])


def _json(path: Path, rng: random.Random, change: Callable[[list[tuple[Any, Any]]], str]) -> str:
    """Change the tree of a JSON file, of one line of a file of lines, or of the JSON among a checkpoint's arrays."""
    if path.suffix == ".npz":
        with np.load(path) as saved:
            arrays: dict[str, Any] = {name: saved[name] for name in saved.files}
        tree = json.loads(arrays["json"].tobytes())
        said = change(list(_places(tree)))
        arrays["json"] = np.frombuffer(_dumped(tree).encode(), np.uint8)
        _save(path, arrays)
        return said
    text = path.read_text()
    lines = text.splitlines(keepends=True) if path.suffix == ".jsonl" else [text]
    at = rng.randrange(len(lines))
    tree = json.loads(lines[at])
    said = change(list(_places(tree)))
    written = _dumped(tree)
    path.write_text("".join([*lines[:at], f"{written}\n", *lines[at + 1 :]]))
    return said if len(lines) == 1 else f"line {at + 1}: {said}"


def _dumped(tree: Any) -> str:
    """As JSON, with what json.dumps cannot write."""
    text = json.dumps(tree, default=str) if not _holds(tree, HUGE) else json.dumps(_without(tree, HUGE, "HUGE"))
    text = text.replace('"HUGE"', "1" + "0" * 5_000)
    return text.replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)


def _holds(tree: Any, value: Any) -> bool:
    return any(isinstance(box[key], int) and box[key] == value for box, key in _places(tree))


def _without(tree: Any, value: Any, instead: Any) -> Any:
    for box, key in _places(tree):
        if isinstance(box[key], int) and box[key] == value:
            box[key] = instead
    return tree


def json_value(path: Path, rng: random.Random, _: Place) -> str:
    """Another kind of value; of numbers first, since most that is read is a number."""

    def change(places: list[tuple[Any, Any]]) -> str:
        numbers = [(box, key) for box, key in places if isinstance(box[key], (int, float))]
        box, key = rng.choice(numbers if numbers and rng.random() < 0.7 else places)
        name = rng.choice(list(VALUES))
        was, box[key] = box[key], VALUES[name]
        return f"{key!r} from {str(was)[:40]!r} to {name}"

    return _json(path, rng, change)


def json_number(path: Path, rng: random.Random, _: Place) -> str:
    """Another number of the same kind, which only a checksum can notice."""

    def change(places: list[tuple[Any, Any]]) -> str:
        numbers = [(b, k) for b, k in places if isinstance(b[k], (int, float)) and not isinstance(b[k], bool)]
        if not numbers:
            return "nothing, since it has no number"
        box, key = rng.choice(numbers)
        was = box[key]
        box[key] = was + rng.choice([-1, 1, 1_000]) if isinstance(was, int) else was * rng.choice([-1.0, 1.01, 1e6])
        return f"{key!r} from {was!r} to {box[key]!r}"

    return _json(path, rng, change)


def json_text(path: Path, rng: random.Random, _: Place) -> str:
    """Another string."""

    def change(places: list[tuple[Any, Any]]) -> str:
        strings = [(box, key) for box, key in places if isinstance(box[key], str)]
        if not strings:
            return "nothing, since it has no string"
        box, key = rng.choice(strings)
        was = box[key]
        box[key] = rng.choice(["", "../../etc", "/dev/full", "x" * 10_000, was + "x", "\ud800", "a\nb", "0" * 64])
        return f"{key!r} from {was[:40]!r} to {box[key][:20]!r}"

    return _json(path, rng, change)


def _key(path: Path, rng: random.Random, act: Callable[[dict[str, Any], str], str]) -> str:
    def change(places: list[tuple[Any, Any]]) -> str:
        keys = [(box, key) for box, key in places if isinstance(box, dict)]
        return act(*rng.choice(keys)) if keys else "nothing, since it has no key"

    return _json(path, rng, change)


def rename_key(path: Path, rng: random.Random, _: Place) -> str:
    def rename(box: dict[str, Any], key: str) -> str:
        box[f"{key}_x"] = box.pop(key)
        return f"{key!r} renamed to '{key}_x'"

    return _key(path, rng, rename)


def remove_key(path: Path, rng: random.Random, _: Place) -> str:
    def remove(box: dict[str, Any], key: str) -> str:
        del box[key]
        return f"{key!r} removed"

    return _key(path, rng, remove)


def add_key(path: Path, rng: random.Random, _: Place) -> str:
    def add(box: dict[str, Any], key: str) -> str:
        box["surprise"] = rng.choice([1, None, "x", float("nan")])
        return f"'surprise' added beside {key!r}"

    return _key(path, rng, add)


def another_tree(path: Path, rng: random.Random, _: Place) -> str:
    """JSON, but not an object."""
    written = rng.choice(["null", "[]", "3", '"text"', "{}", "[" * 100_000 + "]" * 100_000])
    text = path.read_text()
    lines = text.splitlines(keepends=True) if path.suffix == ".jsonl" else [text]
    lines[rng.randrange(len(lines))] = f"{written}\n"
    path.write_text("".join(lines))
    return f"{written[:10]} in place of an object"


JSON: list[Mutator] = [json_value, json_value, json_value, json_number, json_number, json_text, another_tree]
JSON += [rename_key, remove_key, remove_key, add_key]
INNER: list[Mutator] = [json_value, json_value, json_number, json_text, rename_key, remove_key]
"""Of the JSON in a checkpoint's .npz."""

# Numbers in a table or a plan

_NUMBER = re.compile(r"(?<![\w.\"])-?\d[\d_]*(?:\.\d+)?(?:e-?\d+)?(?![\w.\"])")


def written_number(path: Path, rng: random.Random, _: Place) -> str:
    """Another value where a number is written, in a CSV or in TOML."""
    text = path.read_text()
    found = rng.choice(list(_NUMBER.finditer(text)))
    choices = ["nan", "inf", "-1", "0", "0.5", "1e308", "1" + "0" * 5_000, "many", '"3"', "[3]", "[]", "{}", "true", ""]
    other = rng.choice([*choices, "1_0", "0x10", "1e3", "2.0", "9" * 20, "1,234", "\\input{x}", "$\\foo$"])
    path.write_text(text[: found.start()] + other + text[found.end() :])
    return f"{found[0]} at {found.start()} to {other[:20]}"


def written_word(path: Path, rng: random.Random, _: Place) -> str:
    """Another name where one is written: of a method, a key, an environment."""
    text = path.read_text()
    found = rng.choice(list(re.finditer(r"[A-Za-z][\w-]*", text)))
    other = rng.choice(["", "x", "uniform", "<!--<script>", "$\\foo$", "\\input{x}", "x" * 200_000, "é", "\0", "../.."])
    path.write_text(text[: found.start()] + other + text[found.end() :])
    return f"{found[0]!r} at {found.start()} to {other[:20]!r}"


WRITTEN: list[Mutator] = [written_number, written_number, written_number, written_word, written_word]

# Arrays


def array(path: Path, rng: random.Random, _: Place) -> str:
    """An .npz with one array changed, and every checksum of the zip file right."""
    with np.load(path) as saved:
        arrays: dict[str, Any] = {name: saved[name] for name in saved.files}
    name = rng.choice(list(arrays))
    was = arrays[name]
    numbers = was.dtype.kind in "fiu"
    changes: dict[str, Callable[[], Any]] = {
        "removed": lambda: None,
        "empty": lambda: was[:0] if was.ndim else np.zeros(0),
        "one axis more": lambda: was[None],
        "flat": lambda: was.ravel(),
        "one row more": lambda: np.concatenate([was, was[-1:]]) if was.ndim and len(was) else was[None],
        "strings": lambda: np.full(was.shape, "text"),
        "objects": lambda: np.full(was.shape, None, object),
        "NaN": lambda: np.full(was.shape, np.nan) if numbers else was,
        "infinity": lambda: np.full(was.shape, -np.inf, np.float32) if numbers else was,
        "1e308": lambda: np.full(was.shape, 1e308) if numbers else was,
        "complex": lambda: was.astype(complex) if numbers else was,
        "negative": lambda: -np.abs(was.astype(np.int64)) - 1 if numbers else was,
        "another name": lambda: was,
    }
    what = rng.choice(list(changes))
    changed = changes[what]()
    del arrays[name]
    if what != "removed":
        arrays["other" if what == "another name" else name] = changed
    _save(path, arrays)
    return f"the array {name!r}: {what}"


def _save(path: Path, arrays: dict[str, Any]) -> None:
    file = io.BytesIO()
    np.savez(file, allow_pickle=True, **arrays)
    path.write_bytes(file.getvalue())


ARRAYS: list[Mutator] = [array] * 6
