"""Files that are whole or not there: trees of arrays and JSON, written atomically, read without running any code.

A run may come from a stranger, so nothing in its directory is trusted: ``inside`` refuses links, and ``decode``
believes no size that the bytes do not have.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from neoteny.errors import UsageError
from neoteny.replay import memory

_ARRAY = "array "
"""What stands in the JSON for an array: this and its number."""
UNFIT = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)
"""What is raised where a tree has not the parts that are looked for in it: a stranger may have made it."""


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
    """The tree that `encode` was given, lists for tuples, arrays read-only.

    Runs no code: a pickle in `data` is refused. Allocates no more than `data` has: an array whose header claims more
    is refused, and so is a compressed one.
    """

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: whole(part) for name, part in value.items()}
        if isinstance(value, list):
            return [whole(part) for part in value]
        if isinstance(value, str):
            return arrays[value.removeprefix(_ARRAY)] if value.startswith(_ARRAY) else value.removeprefix("string ")
        return value

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            arrays = {info.filename.removesuffix(".npy"): _read_array(archive, info) for info in archive.infolist()}
        return whole(json.loads(arrays.pop("json").tobytes()))
    except Exception as error:  # zipfile, NumPy and json fail on hostile bytes in a dozen ways
        raise Damaged(f"not arrays and JSON: {str(error) or type(error).__name__}") from error


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{info.filename} is compressed")
    with archive.open(info) as file:
        shape, fortran, dtype = _read_header(file)
        if dtype.kind not in "biufc":
            raise ValueError(f"{info.filename} has the dtype {dtype}, and may have numbers only")
        values = file.read()
    if any(side < 0 for side in shape) or math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(f"{info.filename} has {len(values):,} bytes, and claims the shape {shape} of {dtype}")
    array: NDArray[Any] = np.ndarray(shape, dtype, values, order="F" if fortran else "C")
    return array if dtype.kind != "b" else np.asarray(array.view(np.uint8) != 0)  # its bytes may be neither 0 nor 1


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    read_header = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
    header: tuple[tuple[int, ...], bool, np.dtype[Any]] = read_header(file)
    return header


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


def inside(directory: Path, *names: str, folder: bool = False) -> Path:
    """The path of a file of a run, or of a folder of it, for whoever opens it; it need not be there yet.

    Raises UsageError if anything on the way below `directory` is a link, which may lead to a file of the user's that is
    no part of the run, or a device or a pipe, which may never end. `directory` itself may be reached by links.
    """
    path = directory
    for name in names:
        path = path / name
        expected = "folder" if folder or name != names[-1] else "file"
        try:
            found = _kind(path.lstat().st_mode)
        except OSError:  # it is not there, or cannot be looked at, which opening it will tell
            continue
        if found != expected:
            raise UsageError(
                f"{path} is a {found}, and in a run it is a {expected}: remove it, or put the {expected} there"
            )
    return path


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "symbolic link" if stat.S_ISLNK(mode) else "device or pipe"


def write(path: Path, data: bytes) -> None:
    """Write a file whole, down to the disk, or leave what was there before."""
    beside = path.with_name(path.name + ".tmp")
    try:
        beside.unlink(missing_ok=True)  # of a run that was killed, or a link, which is not followed
        with beside.open("xb") as file:
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


def contents(path: Path) -> bytes:
    """The bytes of a file, if they fit into memory."""
    try:
        size, free = path.stat().st_size, memory.available_bytes()
        if free is not None and size > free:
            raise Damaged(f"{path.name} has {size:,} bytes, and {free:,} bytes of memory are free")
        return path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read ({error.strerror})") from error


def read(path: Path, expected: str) -> bytes:
    """The bytes of a file whose checksum is known."""
    data = contents(path)
    if checksum(data) != expected:
        raise Damaged(f"{path.name} is damaged: its checksum does not match")
    return data
