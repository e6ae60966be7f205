"""Memory that is freed is kept while it lasts, and given back after."""

from __future__ import annotations

import subprocess
import sys

MEASURE = """
import ctypes, resource
from neoteny.machine.allocation import memory_kept
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
SIZE = 64 << 20
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        block = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(SIZE)))
        libc.memset(block, 1, ctypes.c_size_t(SIZE))
        libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
plain = faults()
with memory_kept():
    faults()
    kept = faults()
after = faults()
print(plain, kept, after)
"""


def test_pages_are_made_once_while_memory_is_kept_and_anew_otherwise() -> None:
    made = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    plain, kept, after = map(int, made.stdout.split())
    assert kept < plain / 5
    assert kept < after / 5
