"""What a person watching a run sees: a live line in a terminal, plain lines into a pipe."""

from __future__ import annotations

import math
import time
from collections import deque

from neoteny.output import is_terminal, say, show
from neoteny.settings.config import TrainConfig
from neoteny.training.playing import described

_NAMES = {"critic_loss": "loss", "q": "Q", "age_mean": "age"}


class Progress:
    """Shows where a run is: step, speed, time left, last and mean return, loss, Q, sampled age."""

    def __init__(self, config: TrainConfig, quiet: bool) -> None:
        self._total = config.total_timesteps
        self._priming = config.priming_updates
        self._quiet = quiet
        self._live = not quiet and is_terminal()
        self._returns: deque[float] = deque(maxlen=20)
        self._marks: deque[tuple[float, int]] = deque(maxlen=50)
        self._shown = 0.0
        self._values: dict[str, float] = {}

    def episode(self, value: float) -> None:
        """An episode ended with this return."""
        self._returns.append(value)

    def evaluated(self, step: int, returns: list[float]) -> None:
        """An evaluation gave these returns: a line of its own, at once."""
        self._print(f"{step:>9,} / {self._total:,}  evaluation: {described(returns)}", "\n")

    def metrics(self, values: dict[str, float]) -> None:
        """New metrics."""
        not_yet = {"age_mean"} if math.isnan(values.get("age_mean", math.nan)) else set()
        shown = {name: value for name, value in values.items() if name in _NAMES and name not in not_yet}
        self._values.update({_NAMES[name]: value for name, value in shown.items()})

    def measured(self, values: dict[str, float]) -> None:
        """New measures of plasticity."""
        for name, shown in (("grama_inactive", "inactive"), ("trainability", "trainability")):
            if f"probe/critics/{name}" in values:  # of a network of the user's own, units are not known
                self._values[shown] = values[f"probe/critics/{name}"]

    def tick(self, step: int, log: bool) -> None:
        """Show the present line: now and then in a terminal, at every log elsewhere."""
        if self._is_time(log):
            self._marks.append((self._shown, step))
            self._print(self.line(step), "" if self._live else "\n")

    def primed(self, updates: int, log: bool) -> None:
        """Show how far priming is, in which no step is made; as often as `tick`."""
        if self._is_time(log):
            self._marks.clear()
            parts = [f"priming: {updates:,} / {self._priming:,} updates", *self._last_values()]
            self._print("  ".join(parts), "" if self._live else "\n")

    def _is_time(self, log: bool) -> bool:
        """Whether a line is to be shown now, of which the time is then noted."""
        now = time.perf_counter()
        if self._quiet or not (log or (self._live and now - self._shown > 0.5)):
            return False
        self._shown = now
        return True

    def line(self, step: int) -> str:
        """step, steps per second, time left, returns and the last metrics."""
        (first_time, first_step), (last_time, last_step) = self._marks[0], self._marks[-1]
        speed = (last_step - first_step) / (last_time - first_time) if last_time > first_time else 0.0
        parts = [f"{step:>9,} / {self._total:,}"]
        if speed > 0:
            left = int((self._total - step) / speed)
            parts.append(f"{speed:,.0f} steps/s, {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left")
        if self._returns:
            parts.append(f"return {self._returns[-1]:.1f} (mean {sum(self._returns) / len(self._returns):.1f})")
        return "  ".join([*parts, *self._last_values()])

    def _last_values(self) -> list[str]:
        return [
            f"{name} {value:,.0f}" if name == "age" else f"{name} {value:.3g}" for name, value in self._values.items()
        ]

    def say(self, text: str) -> None:
        """Something that a person should know, even of a quiet run."""
        say(("\r\x1b[K" if self._live else "") + text)

    def _print(self, line: str, end: str) -> None:
        if not self._quiet:
            show(("\r\x1b[K" if self._live else "") + line, end)

    def done(self) -> None:
        """End the live line."""
        if self._live:
            show("")
