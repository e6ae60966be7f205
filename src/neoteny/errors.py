"""What is said to a person who asked for something that cannot be done."""


class UsageError(Exception):
    """One sentence: what is wrong, with the value, and what would be right. The command line exits with status 2."""


class RunStopped(Exception):
    """A run that could not go on: what happened, and how to go on. The command line exits with status 1."""


class Interrupted(KeyboardInterrupt):
    """A run that a signal ended, and that can be resumed. The command line exits with 128 + the signal."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.status = 128 + signal


def of_system(error: OSError) -> str:
    """An error of the operating system in words, with the file if it names one: a full disk does not."""
    said = error.strerror or str(error) or type(error).__name__
    return said if error.filename is None else f"{said}: {error.filename}"


def missing_extra(what: str, extra: str, error: ImportError) -> UsageError:
    """The sentence for a package that is not installed."""
    package = (error.name or str(error)).split(".")[0]
    return UsageError(f"{what} needs {package}, which is not installed: {install(extra)}")


def install(extra: str) -> str:
    """How a person installs an extra, from a clone since Neoteny is on no registry; docs and examples say the same."""
    return f"pip install '.[{extra}]' in a clone of Neoteny"
