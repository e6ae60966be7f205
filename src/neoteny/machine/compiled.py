"""Compiled programs: on which device, made with what is fastest there, and kept between runs in the user's cache."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import platform
import time
import warnings
import zlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from neoteny.errors import UsageError
from neoteny.machine.threads import threads_in_force

LIMIT = 1 << 30
"""Bytes that are kept for one kind of machine and number of threads; the oldest go first."""
CHECKED = "checked"
"""The file whose time says up to when entries were checked."""
CPU_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}
"""YNNPACK for matrix products only. XLA's default gives it more: convolutions, which it does on one core, with them."""


def start_on(device: str) -> str:
    """Let JAX start on a device (auto, cpu or gpu) if it has not yet, and return its name for it."""
    config: Any = jax.config
    before = config.jax_platforms
    if device != "auto":  # JAX_PLATFORMS does as much, but only if it was set before JAX was imported
        config.update("jax_platforms", "cuda" if device == "gpu" else "cpu")
    try:
        return jax.default_backend()
    except (AssertionError, RuntimeError) as error:
        wanted = f"--device {device}" if device != "auto" else f"JAX_PLATFORMS={before}"
        if device != "auto":  # as if it had not been asked for
            config.update("jax_platforms", None)
            os.environ.pop("JAX_PLATFORMS", None)
        reason = f" ({error})" if str(error) else ""
        raise UsageError(
            f"{wanted} was asked for, and JAX finds no such device here{reason}: leave it out, or install JAX for it"
        ) from error


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """`jax.jit` of a function, with the compiler's options that are fastest here."""
    return jax.jit(function, compiler_options=compiler_options(), **options)


@functools.cache
def compiler_options() -> dict[str, str]:
    """Those for this backend; none, where this version of XLA does not know them."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=CPU_OPTIONS).lower().compile()
    except RuntimeError:
        return {}
    return CPU_OPTIONS


def keep_compiled() -> None:
    """Let JAX keep what it compiles and find it again.

    A cache that was set up by someone else (JAX_COMPILATION_CACHE_DIR) is left alone, and
    JAX_ENABLE_COMPILATION_CACHE=false turns it off. Where nothing can be written, every run compiles anew.
    """
    config: Any = jax.config
    try:
        directory = cache_directory()
        if not config.jax_enable_compilation_cache or config.jax_compilation_cache_dir not in (None, str(directory)):
            return
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        tidy(directory)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return
    config.update("jax_compilation_cache_dir", str(directory))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # Met where another process is just writing an entry: JAX compiles it itself, and the next start looks at the file.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")


def cache_directory() -> Path:
    """One for each kind of machine, JAX and number of threads: a program made for others would crash, or differ."""
    home = os.environ.get("XDG_CACHE_HOME")
    root = Path(home) if home else Path.home() / ".cache"
    made_for = (platform.machine(), _processor(), jax.__version__, version("jaxlib"), threads_in_force())
    return root / "neoteny" / "compiled" / hashlib.sha256(repr(made_for).encode()).hexdigest()[:16]


def tidy(directory: Path, limit: int = LIMIT) -> None:
    """Delete entries that are damaged, since JAX would complain of them at every start and never write them again.

    A process that is killed while writing leaves half an entry. Only what changed since the last look is read. Then
    the oldest go until the rest fits the limit.
    """
    marker = directory / CHECKED
    since = marker.stat().st_mtime_ns if marker.exists() else 0
    now = time.time_ns() - 1_000_000_000  # file systems' clocks are coarse
    held = []
    for entry in directory.glob("*-cache"):
        facts = entry.stat()
        if facts.st_ctime_ns > since and not _whole(entry):
            entry.unlink(missing_ok=True)
        else:
            held.append((facts.st_mtime_ns, facts.st_size, entry))
    total = sum(size for _, size, _ in held)
    for _, size, entry in sorted(held):
        if total <= limit:
            break
        entry.unlink(missing_ok=True)
        total -= size
    marker.touch()
    os.utime(marker, ns=(now, now))


def _whole(entry: Path) -> bool:
    """Whether an entry can be decompressed: every compressor that JAX may have used knows a damaged one."""
    try:
        return bool(_decompressor()(entry.read_bytes()))
    except Exception:  # each has an error of its own
        return False


def _decompressor() -> Callable[[bytes], bytes]:
    """JAX's choice: zstd where it is to be had, else zlib."""
    for name in ("compression.zstd", "zstandard"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name).decompress
    return zlib.decompress


def _processor() -> str:
    """What this machine's processor is and can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    found = {line.split(":")[0].strip(): line for line in lines if line.startswith(("model name", "flags", "Features"))}
    return repr(sorted(found.values()))
