"""The command line: one word chooses a command, and only what that command needs is loaded."""

from __future__ import annotations

import importlib
import signal
import sys
from contextlib import nullcontext
from typing import Any

from neoteny.commands import COMMANDS, SLOW_TO_LOAD, TRAINING
from neoteny.commands.help import unknown
from neoteny.errors import Interrupted, RunStopped, UsageError, of_system
from neoteny.machine.signals import left_at_once
from neoteny.output import dropping, finish

_ALSO = {"-h": "help", "--help": "help", "-V": "version", "--version": "version"}


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    if "" not in sys.path:  # the current directory, for schedules and environments of the user's own
        sys.path.append("")
    words = [_ALSO.get(words[0], words[0]), *words[1:]] if words else ["help"]
    name = words[0]
    full_name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else name  # such as demo laws
    if name not in COMMANDS:
        print(f"neoteny: {unknown(name)}", file=sys.stderr)
        return 2
    with (
        dropping() if {name, full_name} & TRAINING else nullcontext(),
        left_at_once(f"neoteny {full_name}: stopped") if {name, full_name} & SLOW_TO_LOAD else nullcontext(),
    ):
        return _run(full_name, importlib.import_module(f"neoteny.commands.{name}"), words[1:])


def _run(name: str, command: Any, argv: list[str]) -> int:
    """Run a command, and say in a sentence what went wrong if something did."""
    try:
        status: int = command.main(argv)
        if sys.stdout is not None:  # as in a process that was started without
            sys.stdout.flush()
        return status
    except UsageError as error:
        print(f"neoteny {name}: {error}", file=sys.stderr)
        return 2
    except RunStopped as error:
        print(f"neoteny {name}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # of a command below which the reader has seen enough, as with | head
        finish(sys.stdout)
        return 1
    except OSError as error:
        finish(sys.stdout)
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        print(f"neoteny {name}: {of_system(error)}{notes}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"\n{error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print(f"\nneoteny {name}: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
