"""The hot path of learning: from packed rows to a compiled update, and to the surgery of remedies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neoteny.agents.agent import Agent, UpdateReport
from neoteny.agents.learner import OTHER, Remedy
from neoteny.agents.operating import operate
from neoteny.machine.compiled import compiled
from neoteny.replay.storage import Layout


def unpacking(layout: Layout) -> Callable[..., dict[str, Any]]:
    """What makes a batch's named fields of packed rows (updates, size, width), and its pixels."""

    def unpack(rows: Any, pixels: dict[str, Any]) -> dict[str, Any]:
        count, size, width = rows.shape
        flat = rows.reshape(count * size, width)
        batch = {}
        for name in layout.fields:
            value = layout.unpack(flat, name)
            batch[name] = value.reshape(count, size, *value.shape[1:])
        return {**batch, **pixels}

    return unpack


def compiled_update(agent: Agent, unpack: Callable[..., dict[str, Any]]) -> Any:
    """(state, rows, weights, pixels, other) -> (state, report): every update of a tick in one call, the state donated.

    other: the rows and pixels of a second batch for each update, or None.
    """

    def update(state: Any, rows: Any, weights: Any, pixels: dict[str, Any], other: Any) -> tuple[Any, UpdateReport]:
        batch = unpack(rows, pixels) | ({} if weights is None else {"weight": weights})
        if other is not None:
            batch |= {OTHER + name: value for name, value in unpack(*other).items()}
        return agent.update(state, batch)

    return compiled(update, donate_argnums=0)


def compiled_surgeries(
    remedies: tuple[Remedy, ...], agent: Agent, unpack: Callable[..., dict[str, Any]]
) -> tuple[tuple[Remedy, Any], ...]:
    """Return the remedies that do surgery, each with its compiled function."""

    def compiled_surgery(remedy: Remedy) -> Any:
        def apply(state: Any, rows: Any, pixels: dict[str, Any], key: Any, turn: int) -> Any:
            batch = {field: value[0] for field, value in unpack(rows[:1], pixels).items()}
            return operate(remedy, remedies, agent, state, batch, key, turn)

        return compiled(apply, static_argnums=4)

    return tuple((remedy, compiled_surgery(remedy)) for remedy in remedies if remedy.surgery is not None)
