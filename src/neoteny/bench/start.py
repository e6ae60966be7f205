"""``neoteny bench start``: seconds from the command to the first update, and the memory of a full replay."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from neoteny.arguments import Parser
from neoteny.errors import UsageError
from neoteny.runs.records import read_lines, read_metrics

FILL = """
import json, sys
from neoteny.agents.configs import TD3Config
from neoteny.bench.frames import resident_bytes
from neoteny.bench.sampling import fill
from neoteny.machine.threads import limit_threads
from neoteny.settings.config import ReplayConfig, TrainConfig
config = TrainConfig("Humanoid-v5", TD3Config(), ReplayConfig(capacity=int(sys.argv[1])))
limit_threads(config)
from neoteny.bench.step import batch_of, wait
from neoteny.training.setup import set_up
setup, session = set_up(config, None, None, 1)
empty = resident_bytes()
fill(session.buffer, session.obs.shape[1], 17)
for _ in range(100):
    session.state, report = setup.update(session.state, batch_of(session, config)[0], None, {}, None)
wait(session.state)
print(json.dumps([empty, resident_bytes()]))
"""


def main(argv: list[str]) -> int:
    """Start TD3 over and over; then fill a replay."""
    parser = Parser(prog="neoteny bench start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="starts with a warm cache (5)")
    parser.add_argument("--held", type=int, default=1_000_000, help="transitions in the replay (1,000,000)")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        raise UsageError(f"--rounds must be >= 1, got {options.rounds}")
    if options.held < 1:
        raise UsageError(f"--held must be >= 1, got {options.held}")
    first = _start()
    taken = [_start() for _ in range(options.rounds)]
    print("TD3 on Hopper-v5, --learning-starts 256: seconds from the command to the first update")
    seconds = [each for each, _ in taken]
    print(f"  first start {first[0]:.1f}; then {statistics.median(seconds):.1f} (the slowest {max(seconds):.1f})")
    print(f"  programs compiled: {taken[-1][1]}")
    completed = subprocess.run(
        [sys.executable, "-c", FILL, str(options.held)], capture_output=True, text=True, check=False
    )
    if completed.returncode:
        raise UsageError(f"the replay could not be filled: {completed.stderr.strip().splitlines()[-1]}")
    empty, full = np.array(json.loads(completed.stdout.splitlines()[-1])) / 1e9
    print(f"TD3 on Humanoid-v5: {empty:.2f} GB resident with an empty replay, {full:.2f} GB with {options.held:,} held")
    return 0


def _start() -> tuple[float, dict[str, int]]:
    """Seconds until the log tells of an update; and how often each program was compiled."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = "train td3 --env Hopper-v5 --learning-starts 256 --steps 300 --log-every 1 --eval-every 0 --out".split()
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "neoteny", *words, str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not any(line.get("updates", 0) > 0 for line in read_metrics(run)):
            if process.poll() is not None:
                raise UsageError(f"the run ended with status {process.returncode} before its first update")
            time.sleep(0.02)
        taken = time.perf_counter() - began
        process.wait()
        compiled = next(line["compilations"] for line in read_lines(run / "timing.jsonl") if "compilations" in line)
    return taken, compiled
