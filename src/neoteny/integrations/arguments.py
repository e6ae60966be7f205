"""What every integration takes: two plain numbers for linear decay, or any schedule."""

from __future__ import annotations

from neoteny.replay.ages.ageing import Schedule
from neoteny.replay.ages.schedules import LinearDecay
from neoteny.replay.sampling import check_schedule_type


def schedule_of(age_weight: Schedule | None, decay_steps: float | None, min_weight: float | None) -> Schedule:
    """`age_weight` if it is given, else SWD's linear decay with the numbers that are.

    age_weight: a schedule of ours or the user's own. decay_steps: T, in transitions. min_weight: what old ones keep.
    """
    numbers = {"decay_steps": decay_steps, "min_weight": min_weight}
    given = {name: number for name, number in numbers.items() if number is not None}
    if age_weight is None:
        return LinearDecay(**given)
    if given:
        raise ValueError(
            f"age_weight={age_weight!r} has its own numbers: leave out {' and '.join(given)}, or leave out age_weight"
        )
    return check_schedule_type(age_weight)
