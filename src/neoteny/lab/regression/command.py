"""``neoteny lab regression``: a network fits a stream of examples from a replay of what came. There is no RL in it.

The function is fixed and the inputs change slowly (Dohare et al. 2024: of 20 bits 15 are slow, and one of these flips
every hundredth of the stream); in the stationary control all bits are drawn anew each time. After each example one
step of Adam is made on a batch from the replay: uniform or by age, growing or bounded. Reported are the squared error
on each new example before it is stored; the fresh gap, the loss of a copy of the network after further updates on the
frozen buffer over that of new networks after as many; and the share of the gradient that the newest examples have,
which Theorem 3 says falls as 1/k under uniform replay that evicts nothing.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from neoteny.arguments import Parser
from neoteny.errors import UsageError, missing_extra
from neoteny.lab.regression.experiment import PARTS, SCALES, Outcome, Scale, arms, findings, run, streams
from neoteny.lab.regression.page import Outcomes, draw, markdown
from neoteny.lab.regression.stream import WORLDS


def main(argv: list[str]) -> int:
    """Run every arm in both worlds, print a table and verdicts, and write them with a picture."""
    parser = Parser(prog="neoteny lab regression", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("regression"), help="the directory to write (regression)")
    parser.add_argument("--scale", choices=SCALES, default="full", help="full, or quick, which decides nothing (full)")
    parser.add_argument("--seeds", type=int, help="seeds of each arm (full: 10, quick: 3)")
    parser.add_argument("--examples", type=int, help="length of a stream (full: 1,000,000, quick: 100,000)")
    parser.add_argument("--world", action="append", choices=WORLDS, help="only this one; may be given twice (both)")
    parser.add_argument("--arm", action="append", help="only this one; may be given more than once (all)")
    options = parser.parse_args(argv)
    scale = _scale(options)
    chosen = arms(scale.examples)
    for name in options.arm or ():
        if name not in chosen:
            raise UsageError(f"--arm must be one of {'; '.join(chosen)}, got {name}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("the picture", "report", error) from error
    decides = options.scale == "full"
    outcomes: Outcomes = {}
    for world in options.world or WORLDS:
        stream = streams(world, scale)
        for name in options.arm or chosen:
            began = time.perf_counter()
            outcomes[world, name] = run(stream, chosen[name], scale)
            took = time.perf_counter() - began
            print(f"{world}: {name}: error {outcomes[world, name].late.mean():.4f} ({took:.0f} s)", flush=True)
    found = findings(outcomes) if decides else []
    options.out.mkdir(parents=True, exist_ok=True)
    text = markdown(outcomes, found, scale, decides)
    (options.out / "regression.md").write_text(text)
    (options.out / "regression.json").write_text(json.dumps(_plain(outcomes, scale), indent=1) + "\n")
    figure = Figure(figsize=(12, 4 * len({world for world, _ in outcomes})), layout="constrained")
    draw(figure, outcomes, scale, decides)
    figure.savefig(options.out / "regression.png", dpi=90)
    print(f"\n{text}\nWrote {', '.join(str(options.out / f'regression.{end}') for end in ('md', 'json', 'png'))}.")
    return 0


def _scale(options: Any) -> Scale:
    """The scale with what the options change of it."""
    given = {name: value for name in ("seeds", "examples") if (value := getattr(options, name)) is not None}
    scale = replace(SCALES[options.scale], **given)
    if scale.seeds < 1:
        raise UsageError(f"--seeds must be >= 1, got {scale.seeds}")
    if scale.examples < 10 * PARTS or scale.examples % PARTS:
        raise UsageError(f"--examples must be a multiple of {PARTS} and >= {10 * PARTS}, got {scale.examples}")
    return scale


def _plain(outcomes: Outcomes, scale: Scale) -> dict[str, Any]:
    """Everything that was measured, as JSON takes it."""

    def numbers(outcome: Outcome) -> dict[str, Any]:
        fields = {"error": outcome.errors, "gap": outcome.gaps, "share": outcome.shares, "expected": outcome.expected}
        return {name: np.round(value.astype(float), 7).tolist() for name, value in fields.items()}

    each = [{"world": world, "arm": arm, **numbers(outcome)} for (world, arm), outcome in outcomes.items()]
    return {"examples": scale.examples, "seeds": scale.seeds, "outcomes": each}
