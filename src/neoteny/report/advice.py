"""``neoteny advise``: what a replay does, which T and w_min rules of thumb would give it, and what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neoteny.plasticity.drift import age_ranges
from neoteny.replay.ages.ageing import Floats, Schedule, describe, evaluate
from neoteny.replay.ages.horizon import decay_steps_from_drift
from neoteny.replay.ages.schedules import LinearDecay
from neoteny.replay.ages.sums import weight_sums
from neoteny.replay.sampling import AgeWeightedSampler
from neoteny.report.situation import Situation

MIN_WEIGHT = LinearDecay().min_weight
"""The paper's w_min, which every rule here has."""
MOMENTS = (0.1, 0.5, 0.9)
"""When in a run the transitions are added whose draws are counted."""
_PLACES = 400
"""Ages at which the draws of a transition are added up."""


class Suggestion(NamedTuple):
    """A schedule by a rule."""

    rule: str
    flags: str
    schedule: LinearDecay
    why: str


class Effects(NamedTuple):
    """What a schedule does to what is stored."""

    newest: float
    """How often the newest is drawn, over uniform replay."""
    mean_age: float
    effective: float
    """The effective sample size."""
    older: tuple[float, float]
    """The share of draws that go to the older nine tenths, and to the older half, of what is stored."""


def effects(schedule: Schedule, num_stored: int, num_envs: int) -> Effects:
    """What `schedule` does to so many transitions, exactly."""
    described = describe(schedule, capacity=num_stored, num_envs=min(num_envs, num_stored))
    upto = shares_upto(schedule, num_stored, num_envs)
    tenth, half = (float(1.0 - upto[max(1, num_stored // part) - 1]) for part in (10, 2))
    return Effects(described.newest_share, described.mean_age, described.effective_sample_size, (tenth, half))


def shares_upto(schedule: Schedule, num_stored: int, num_envs: int) -> Floats:
    """The share of draws among the newest 1, 2, ... of what is stored."""
    return AgeWeightedSampler(schedule).probabilities(num_stored, num_envs, num_stored).cumsum()


def draws_by_the_end(schedule: Schedule, added: float, steps: int, capacity: int, starts: float) -> float:
    """How often a transition is drawn by the end of a run, over V, the draws for each step.

    It is the sum over the steps of its life of w(age) / sum of all weights then, as an integral over the logarithm of
    the age. Under uniform replay that is ln(steps / added) while the buffer grows.

    Args:
        schedule: by which ages are drawn.
        added: the step at which it was added.
        steps: of the run.
        capacity: of the buffer, which forgets it at that age.
        starts: the step at which learning starts.
    """
    last = min(steps - added, capacity)
    first = max(1.0, starts - added)
    if last < first:
        return 0.0
    ages = np.geomspace(first - 0.5, last + 0.5, _PLACES)  # each age stands for the half before it and the half after
    shares = np.empty(_PLACES)
    for place, age in enumerate(ages):
        stored = max(2, min(capacity, round(added + age)))
        whole = min(max(1, round(age)), int(last), stored)
        weight = evaluate(schedule, np.array([whole]), num_stored=stored, clock=stored)[0]
        shares[place] = weight / weight_sums(schedule, stored, stored).weights
    return float(np.trapezoid(shares * ages, np.log(ages)))


def suggestions(situation: Situation) -> list[Suggestion]:
    """What each rule that applies would choose; the first is what a person without a search of their own may take."""
    chosen = [
        Suggestion(
            "relative",
            "--replay swd --decay-steps auto",
            LinearDecay("auto", MIN_WEIGHT),
            "T is a tenth of what is stored and grows with it, so that the newest data gains the same in a buffer of "
            "any size.",
        )
    ]
    agent, steps = situation.agent, situation.steps
    if agent is not None and steps is not None:
        share = agent.usual_decay_steps / agent.usual_steps
        decay_steps = max(2, round(share * steps))
        chosen.append(
            Suggestion(
                "paper",
                f"--replay swd --decay-steps {decay_steps}",
                LinearDecay(decay_steps, MIN_WEIGHT),
                f"T is {share:.1%} of the run's {steps:,} steps, as the paper has it for {agent.name}.",
            )
        )
    if situation.drift is not None:
        bounds = age_ranges(situation.drift.num_stored)
        decay_steps = max(2, round(decay_steps_from_drift(bounds, situation.drift.far, MIN_WEIGHT)))
        chosen.append(
            Suggestion(
                "drift",
                "--replay swd --decay-steps drift",
                LinearDecay(decay_steps, MIN_WEIGHT),
                "T is the largest that draws at most 0.1 more of what is far from what the agent would do now than "
                "the newest data has, w_min's part aside (experimental).",
            )
        )
    return chosen


def advice(situation: Situation) -> str:
    """All of it in words."""
    stored, num_envs = situation.num_stored, situation.num_envs
    present = effects(situation.schedule, stored, num_envs)
    lines = [
        f"{situation.name}: {situation.about}, {stored:,} of at most {situation.capacity:,} transitions stored",
        "",
        f"What it does now: {situation.schedule}",
        f"  The newest transition is drawn {present.newest:.2f} times as often as under uniform replay.",
        f"  What is drawn has a mean age of {present.mean_age:,.0f} transitions (uniform: {(stored + 1) / 2:,.0f}).",
        f"  The effective sample size is {present.effective:,.0f}, {present.effective / stored:.0%} of what is stored.",
        f"  {present.older[0]:.0%} of the draws are older than {stored // 10:,} transitions (uniform: 90%), and "
        f"{present.older[1]:.0%} older than {stored // 2:,} (uniform: 50%).",
        f"  {_lifetime(situation)}",
        "",
        f"What rules of thumb would choose, all with the paper's w_min of {MIN_WEIGHT}:",
        f"  {'rule':<10}{'T now':>12}{'newest':>9}{'mean age':>12}{'effective':>12}{'older half':>12}",
    ]
    chosen = suggestions(situation)
    for one in chosen:
        does = effects(one.schedule, stored, num_envs)
        numbers = f"{does.newest:>9.2f}{does.mean_age:>12,.0f}{does.effective:>12,.0f}{does.older[1]:>12.0%}"
        lines.append(f"  {one.rule:<10}{one.schedule.steps_of(stored):>12,.0f}{numbers}")
    lines += [f"  {one.rule}: {one.why}" for one in chosen]
    lines += [
        f"  w_min: with {MIN_WEIGHT} the newest data can gain at most {1 / MIN_WEIGHT:.0f} times; less makes replay "
        "forget what is old.",
        "",
        f"Suggested without a search of your own, by the relative rule: {chosen[0].flags} --min-weight {MIN_WEIGHT}",
    ]
    lines += ["", "What is not known:", *(f"  {sentence}" for sentence in (*situation.unknown, *_UNKNOWN))]
    return "\n".join(lines)


_UNKNOWN = (
    "Which of these learns best here: this is arithmetic, and nothing was trained. The paper tried other T and w_min "
    "on one task.",
    "Whether recency helps at your replay volume: a 2026 study (arXiv 2605.10236) finds that it does at a low one, "
    "the paper that it does at every one.",
)


def _lifetime(situation: Situation) -> str:
    """How often transitions are drawn by the end of the run, or until now if its length is not known."""
    steps = situation.num_stored if situation.steps is None else situation.steps
    starts = 0.0 if situation.agent is None else float(situation.agent.learning_starts)
    volume = situation.volume
    times = [
        draws_by_the_end(situation.schedule, max(1.0, share * steps), steps, situation.capacity, starts)
        for share in MOMENTS
    ]
    shown = [f"{one:.2f} V" if volume is None else f"{one * volume:,.1f}" for one in times]
    when = "until now" if situation.steps is None else "by the end"
    return (
        f"A transition that is added at {_listed([f'{share:.0%}' for share in MOMENTS])} of the {steps:,} steps is "
        f"drawn {_listed(shown)} times {when}."
    )


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def draw(situations: Sequence[Situation], picture: Path) -> None:
    """A row for each: the share of draws up to each age, now and by each rule, and drift over age if any is known."""
    from matplotlib.figure import Figure

    columns = 2 if any(situation.drift is not None for situation in situations) else 1
    figure = Figure(figsize=(6.2 * columns, 0.6 + 3.8 * len(situations)), layout="constrained")
    panels: Any = figure.subplots(len(situations), columns, squeeze=False)
    for row, situation in zip(panels, situations, strict=True):
        _draw_shares(row[0], situation)
        if columns == 2:
            _draw_drift(row[1], situation)
    figure.savefig(picture, dpi=110)


def _draw_shares(panel: Any, situation: Situation) -> None:
    """The share of draws up to each age; rules that give the same share a line."""
    stored = situation.num_stored
    ages = np.unique(np.geomspace(1, stored, 300).astype(np.int64))
    named = {"now": situation.schedule, **{one.rule: one.schedule for one in suggestions(situation)}}
    lines: dict[bytes, list[str]] = {}
    for name, schedule in named.items():
        shares = shares_upto(schedule, stored, situation.num_envs)[ages - 1]
        lines.setdefault(np.round(shares, 6).tobytes(), []).append(name)
    for shares_bytes, names in lines.items():
        panel.plot(ages, np.frombuffer(shares_bytes), label=" = ".join(names), linewidth=2.4 if "now" in names else 1.4)
    panel.plot(ages, ages / stored, color="grey", linestyle=":", label="uniform")
    title = "/".join(Path(situation.name).parts[-3:])
    panel.set(title=title, xlabel="age, in transitions", ylabel="share of draws up to it", xscale="log")
    panel.legend(fontsize=8)
    panel.grid(alpha=0.25)


def _draw_drift(panel: Any, situation: Situation) -> None:
    """How far what was done at each age is from what would be done now."""
    if situation.drift is None:
        panel.text(0.5, 0.5, "drift was not measured", ha="center", va="center")
        panel.set_axis_off()
        return
    panel.plot(situation.drift.ages, situation.drift.means, marker="o", markersize=3)
    panel.set(title="drift", xlabel="age, in transitions", ylabel="how far from what would be done", xscale="log")
    panel.grid(alpha=0.25)
