"""What is run and compared, all decided before the first run: arms, scales, measures and comparisons."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neoteny.lab.regression.learning import Arm, Network, begin, fresh_gap, learn, newest_share
from neoteny.lab.regression.stream import INPUTS, Stream, World, draw, examples_of
from neoteny.replay.ages.schedules import LinearDecay, TruncatedGeometric, Uniform
from neoteny.report.scores import LAST, Scores
from neoteny.report.verdict import Claim, Finding, judge

PARTS = 100
"""Into so many stretches of equal length a stream is cut; a slow bit flips between two of them."""
MOMENTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the stream after which the gap to new networks and the newest's share of the gradient are measured."""
EARLY = 0.1
"""The moment beside whose gap the last one is set."""
WIDTHS = (5,)
"""Hidden units, as in the source: too few for the whole function."""


@dataclass(frozen=True)
class Scale:
    """How large an experiment is; every length in it is a share of the stream's."""

    examples: int
    seeds: int

    @property
    def every(self) -> int:
        """Examples between two flips, and updates that the fresh gap gives each network."""
        return self.examples // PARTS

    @property
    def newest(self) -> int:
        """How many examples count as the newest."""
        return max(1, self.examples // 1_000)


SCALES = {"full": Scale(1_000_000, 10), "quick": Scale(100_000, 3)}


def arms(examples: int) -> dict[str, Arm]:
    """Return every replay for a stream of so many examples.

    SWD has the paper's T, 8% of the stream, and w_min 0.1. The controls of equal mean age have that of SWD at the end
    of the stream, where errors are compared. Bounded buffers contain a tenth of the stream.
    """
    swd, auto = LinearDecay(0.08 * examples, 0.1), LinearDecay("auto")
    age = swd.describe(capacity=examples).mean_age
    return {
        "uniform": Arm(Uniform(), examples),
        "uniform, equal age": Arm(Uniform(), round(2 * age - 1)),
        "uniform, bounded": Arm(Uniform(), examples // 10),
        "swd": Arm(swd, examples),
        "swd, bounded": Arm(swd, examples // 10),
        "swd, auto T": Arm(auto, examples),
        "truncated geometric, equal age": Arm(TruncatedGeometric(age), examples),
    }


COMPARED = (
    ("swd", "uniform"),
    ("swd", "uniform, equal age"),
    ("swd", "truncated geometric, equal age"),
    ("swd, auto T", "uniform"),
    ("uniform, bounded", "uniform"),
    ("swd, bounded", "uniform, bounded"),
)
"""Which arm is compared with which, in each world, by the online error and by the fresh gap; less is better."""


@dataclass(frozen=True)
class Outcome:
    """What was measured of an arm in a world."""

    errors: np.ndarray
    """Mean online error of each part of the stream, (seeds, parts)."""
    gaps: np.ndarray
    """The fresh gap at each moment, (seeds, moments)."""
    shares: np.ndarray
    """The newest examples' share of the gradient at each moment, (seeds, moments)."""
    expected: np.ndarray
    """The newest examples' share of the draws at each moment, in closed form, (moments,)."""

    @property
    def late(self) -> np.ndarray:
        """The mean error over the last tenth of the stream, (seeds,)."""
        return np.asarray(self.errors[:, -max(1, round(LAST * self.errors.shape[1])) :].mean(axis=1))

    @property
    def slope(self) -> float:
        """The power of k with which the newest's share of the gradient falls, by least squares on the logarithms."""
        shares = np.log(np.maximum(self.shares.mean(axis=0), 1e-12))
        return float(np.polyfit(np.log(np.array(MOMENTS)), shares, 1)[0])


def streams(world: World, scale: Scale) -> Stream:
    """Return the streams of all seeds, seeds first; every arm is given the same."""

    def one(key: Any) -> Stream:
        return examples_of(draw(key, scale.examples, scale.every), world, scale.every)

    return jax.jit(lambda keys: jax.lax.map(one, keys))(_keys(scale, 0))  # one after another, to need less memory


def run(stream: Stream, arm: Arm, scale: Scale, widths: tuple[int, ...] = WIDTHS) -> Outcome:
    """Train networks from a replay of their streams, one for each seed, and measure them."""
    network = Network(widths)
    part, gap, share = _programs(network, arm, scale.every, scale.newest)
    fit = jax.vmap(lambda key: begin(network, key, INPUTS))(_keys(scale, 1))
    errors, gaps, shares, expected = [], [], [], []
    moments = {math.ceil(moment * PARTS) for moment in MOMENTS}
    for done in range(1, PARTS + 1):
        fit, found = part(fit, stream, jnp.int32((done - 1) * scale.every), _keys(scale, 2))
        errors.append(np.asarray(found.mean(axis=1)))
        if done in moments:
            stored = done * scale.every
            gaps.append(np.asarray(gap(fit.params, stream, jnp.int32(stored), _keys(scale, 3 + done))))
            shares.append(np.asarray(share(fit.params, stream, jnp.int32(stored), _keys(scale, 3 + PARTS + done))))
            held = min(stored, arm.capacity)
            expected.append(arm.schedule.fresh_share(held, min(held, scale.newest)))
    each_seed = [np.stack(each, 1).astype(np.float64) for each in (errors, gaps, shares)]
    return Outcome(each_seed[0], each_seed[1], each_seed[2], np.array(expected))


@functools.cache
def _programs(network: Network, arm: Arm, every: int, newest: int) -> tuple[Any, ...]:
    """Training over `every` examples, the fresh gap and the newest's share, compiled once for both worlds."""
    functions = learn(network, arm, every), fresh_gap(network, arm, every), newest_share(network, arm, newest)
    return tuple(jax.jit(jax.vmap(function, in_axes=(0, 0, None, 0))) for function in functions)


def findings(outcomes: Mapping[tuple[World, str], Outcome]) -> list[Finding]:
    """Return a verdict on every comparison of arms that were run, by the project's own test."""
    found = []
    for world in dict.fromkeys(world for world, _ in outcomes):
        mine = {arm: outcome for (where, arm), outcome in outcomes.items() if where == world}
        late: Scores = {arm: {world: outcome.late} for arm, outcome in mine.items()}
        gaps: Scores = {arm: {world: outcome.gaps[:, -1]} for arm, outcome in mine.items()}
        for measure, scores in (("online error", late), ("fresh gap at the end", gaps)):
            found += [
                judge(Claim(*pair, measure=f"{world}/{measure}", lower=True), scores)
                for pair in COMPARED
                if set(pair) <= set(mine)
            ]
        early = MOMENTS.index(EARLY)
        for arm, outcome in mine.items():
            names = f"{arm} at the end", f"{arm} after {EARLY:.0%} of the stream"
            both: Scores = {names[0]: {world: outcome.gaps[:, -1]}, names[1]: {world: outcome.gaps[:, early]}}
            found.append(judge(Claim(*names, measure=f"{world}/fresh gap", lower=True), both))
    return found


def _keys(scale: Scale, purpose: int) -> Any:
    """A key for each seed, of this purpose; seed 1 is the same whatever the number of seeds."""
    return jnp.stack([jax.random.fold_in(jax.random.key(seed), purpose) for seed in range(1, scale.seeds + 1)])
