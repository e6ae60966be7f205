"""A file of JSON lines that is appended to, and that a full disk neither damages nor holds up."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


class Lines:
    """Appends lines in their order. What the disk does not take waits in memory, and is written when it does."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab+", buffering=0)
        self.end_at(self._file.seek(0, os.SEEK_END))

    def end_at(self, position: int) -> None:
        """Remove what is after `position`, and end the line before it if a full disk once cut that short."""
        self._file.truncate(position)
        self._file.seek(0)
        before = self._file.read()
        self._waiting = bytearray(b"\n" if before and not before.endswith(b"\n") else b"")
        self._digest = hashlib.sha256(before + self._waiting)

    def append(self, values: dict[str, Any]) -> OSError | None:
        """Append a line; return why the disk did not take it, if so."""
        line = json.dumps(values).encode() + b"\n"
        self._waiting += line
        self._digest.update(line)
        try:
            self.write()
        except OSError as error:
            return error
        return None

    @property
    def digest(self) -> str:
        """The SHA-256 of every line, also of those that wait."""
        return self._digest.hexdigest()

    def write(self) -> None:
        """Write what waits, or raise OSError."""
        while self._waiting:
            del self._waiting[: self._file.write(self._waiting)]

    def sync(self) -> int:
        """Bring every line down to the disk, or raise OSError; the length of the file in bytes."""
        self.write()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
