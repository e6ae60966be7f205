"""Memory between updates: what one update frees is kept for the next, which would else have its pages made anew."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

# glibc's malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
KEPT = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 64 << 20}
DEFAULT = {M_MMAP_MAX: 65_536, M_TRIM_THRESHOLD: 128 << 10, M_TOP_PAD: 0}


@contextlib.contextmanager
def memory_kept() -> Iterator[None]:
    """Let malloc take large blocks from its heap, and not give it back, for as long as this lasts.

    XLA asks for its scratch memory at each call, 41 MB of it for SAC with SimBa. From mmap, which is glibc's choice
    above 32 MB, every call has the kernel clear ten thousand pages. Without glibc this does nothing.
    """
    _set(KEPT)
    try:
        yield
    finally:
        _set(DEFAULT)


def _set(options: dict[int, int]) -> None:
    library: Any = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for option, value in options.items():
            library.mallopt(option, value)
