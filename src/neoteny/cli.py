"""The command line: one word chooses a command, and only what that command needs is loaded."""

from __future__ import annotations

import importlib
import sys

from neoteny.commands import COMMANDS
from neoteny.commands.help import unknown
from neoteny.errors import Interrupted, RunStopped, UsageError

_ALSO = {"-h": "help", "--help": "help", "-V": "version", "--version": "version"}


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    if "" not in sys.path:  # the current directory, for schedules and environments of the user's own
        sys.path.append("")
    words = [_ALSO.get(words[0], words[0]), *words[1:]] if words else ["help"]
    if words[0] in COMMANDS:
        return _run(words[0], words[1:])
    print(f"neoteny: {unknown(words[0])}", file=sys.stderr)
    return 2


def _run(name: str, argv: list[str]) -> int:
    """Run a command and turn what goes wrong into a sentence and an exit status."""
    try:
        return int(importlib.import_module(f"neoteny.commands.{name}").main(argv))
    except UsageError as error:
        print(f"neoteny {name}: {error}", file=sys.stderr)
        return 2
    except RunStopped as error:
        print(f"neoteny {name}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"neoteny {name}: {error.strerror}: {error.filename}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"\n{error}", file=sys.stderr)
        return error.status
