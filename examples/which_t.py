"""Does a T that follows the buffer do as well as the best fixed T? Prints the answer from the runs of which_t.toml.

    neoteny sweep examples/which_t.toml --out which_t
    python examples/which_t.py which_t

The best fixed T of a task is the one with the largest mean score over seeds 6 to 10; it is compared with "auto" over
seeds 1 to 5. A run's score is the mean return of the episodes in its last tenth.
"""

import sys
from itertools import combinations

import numpy as np

import neoteny

STEPS = 24_000
CHOOSING, COMPARING = range(6, 11), range(1, 6)


def interval(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """The differences of means that an exact two-sided permutation test at 5% does not reject."""
    splits = [list(split) for split in combinations(range(len(a) + len(b)), len(a))]

    def rejected(shift: float) -> bool:
        both = np.concatenate([a - shift, b])
        differences = [abs(2 * both[split].mean() - 2 * both.mean()) for split in splits]  # of two halves
        return np.mean([value >= differences[0] - 1e-9 for value in differences]) <= 0.05

    middle, reach = a.mean() - b.mean(), 3 * (np.ptp(np.concatenate([a, b])) + 1e-9)
    kept = [shift for shift in np.linspace(middle - reach, middle + reach, 1_201) if not rejected(shift)]
    return kept[0], kept[-1]


def main(folder: str) -> None:
    """Print every method's mean score, and for each task auto against the best fixed T."""
    runs = neoteny.load_runs(folder)
    late = runs[runs.step > 0.9 * STEPS].groupby(["task", "method", "seed"])["return"].mean()
    for task in late.index.unique("task"):
        scores = {name.split("decay_steps ")[1]: late[task, name] for name in late[task].index.unique("method")}
        chosen = {t: own[list(CHOOSING)].mean() for t, own in scores.items() if t != "auto"}
        best = max(chosen, key=lambda t: chosen[t])
        auto, fixed = (scores[t][list(COMPARING)].to_numpy() for t in ("auto", best))
        low, high = interval(auto, fixed)
        print(f"{task}: over seeds 6 to 10 " + ", ".join(f"T {t} {chosen[t]:.0f}" for t in sorted(chosen, key=int)))
        print(
            f"  over seeds 1 to 5 auto {auto.mean():.0f}, T {best} {fixed.mean():.0f}: "
            f"difference {auto.mean() - fixed.mean():.0f}, 95% interval {low:.0f} to {high:.0f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
