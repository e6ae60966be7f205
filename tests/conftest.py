"""What holds of all tests: examples are not timed, and what was measured is said at the end, on several cores too."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # by default an example that takes 0.2 s fails
settings.load_profile("untimed")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Numbers that a test measured: record_property("measured", "...")."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(value)
