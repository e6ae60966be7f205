"""Files that are whole or not there: trees of arrays and JSON, written atomically, read without running any code."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ARRAY = "array "
"""What stands in the JSON for an array: this and its number."""


class Damaged(Exception):
    """A file that does not hold what was written, in one sentence."""


def encode(tree: Any) -> bytes:
    """A tree of dicts, lists, arrays, strings, numbers and None as the bytes of an .npz file."""
    arrays: list[NDArray[Any]] = []

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return f"{_ARRAY}{len(arrays) - 1}"
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(part) for part in value]
        if isinstance(value, str):
            return f"string {value}"
        return value.item() if isinstance(value, np.generic) else value

    text = json.dumps(plain(tree)).encode()
    named: dict[str, Any] = {str(index): array for index, array in enumerate(arrays)}
    file = io.BytesIO()
    np.savez(file, json=np.frombuffer(text, np.uint8), **named)
    return file.getvalue()


def decode(data: bytes) -> Any:
    """The tree that `encode` was given, lists for tuples. Runs no code: a pickle in `data` is refused."""

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: whole(part) for name, part in value.items()}
        if isinstance(value, list):
            return [whole(part) for part in value]
        if isinstance(value, str):
            return arrays[value.removeprefix(_ARRAY)] if value.startswith(_ARRAY) else value.removeprefix("string ")
        return value

    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return whole(json.loads(arrays["json"].tobytes()))
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise Damaged(f"not arrays and JSON: {error}") from error


def digest(tree: Any) -> str:
    """A short digest of a tree: equal trees, equal digests."""
    hasher = hashlib.sha256()
    for part in _walk(tree, ""):
        hasher.update(part)
    return hasher.hexdigest()[:16]


def _walk(tree: Any, name: str) -> Iterator[Any]:
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from _walk(tree[key], f"{name}/{key}")
    elif isinstance(tree, (list, tuple)):
        for index, part in enumerate(tree):
            yield from _walk(part, f"{name}/{index}")
    elif isinstance(tree, np.ndarray):
        yield f"{name} {tree.dtype} {tree.shape}".encode()
        yield np.ascontiguousarray(tree).data.cast("B") if tree.size else b""
    else:
        yield f"{name} {tree!r}".encode()


def checksum(data: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(data).hexdigest()


def write(path: Path, data: bytes) -> None:
    """Write a file whole, down to the disk, or leave what was there before."""
    beside = path.with_name(path.name + ".tmp")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: Path, expected: str) -> bytes:
    """The bytes of a file whose checksum is known."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read ({error.strerror})") from error
    if checksum(data) != expected:
        raise Damaged(f"{path.name} is damaged: its checksum does not match")
    return data
