"""What is said to a person who asked for something that cannot be done."""


class UsageError(Exception):
    """One sentence: what is wrong, with the value, and what would be right. The command line exits with status 2."""


def missing_extra(what: str, extra: str, error: ImportError) -> UsageError:
    """The sentence for a package that is not installed."""
    return UsageError(f"{what} needs {error.name}, which is not installed: pip install 'neoteny[{extra}]'")
