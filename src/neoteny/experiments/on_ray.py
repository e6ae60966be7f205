"""``neoteny sweep --launcher ray``: the runs of a plan as tasks of a Ray cluster, on a path that its nodes share."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import Any

from neoteny.errors import Interrupted, UsageError, missing_extra
from neoteny.experiments.plan import Plan, PlannedRun
from neoteny.experiments.sweep import TRIES, Outcome, log_of
from neoteny.experiments.watch import Watch
from neoteny.experiments.work import carry_out, is_done, reason
from neoteny.machine.signals import asked_to_stop
from neoteny.settings.config import TrainConfig

LOOK = 1.0
"""Seconds between looks at the cluster."""


def sweep_on_ray(plan: Plan, out: Path, address: str | None, stop_after: float | None = None) -> Outcome:
    """Carry out every run of `plan` that is not done, a task with one core for each.

    `out` must be a path that every node sees. When a node dies, Ray starts its tasks elsewhere, and each goes on from
    its checkpoint. address: of a cluster, `auto` for the one this machine belongs to; None starts one here.
    """
    try:
        import ray
    except ImportError as error:
        raise missing_extra("--launcher ray", "ray", error) from error
    out = out.resolve()
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
    # A process for each run: the number of maths threads is fixed before JAX starts, and is part of the result.
    task = ray.remote(num_cpus=1, max_calls=1, max_retries=-1)(_task)
    outcome = Outcome(before=[run for run in plan.runs if is_done(out / run.directory, run.config.total_timesteps)])
    tries: dict[PlannedRun, int] = {}

    def submit(run: PlannedRun) -> Any:
        tries[run] = tries.get(run, 0) + 1
        return task.options(
            runtime_env={"env_vars": {"PJRT_NPROC": str(run.config.num_threads), "JAX_PLATFORMS": "cpu"}}
        ).remote(run.config.to_json(), str(out / run.directory), str(log_of(out, run)))

    under_way = {submit(run): run for run in plan.runs if run not in outcome.before}
    watch = Watch(plan, out, len(outcome.before))
    began = time.monotonic()
    with asked_to_stop() as stop:
        while under_way:
            if stop.signal is not None or (stop_after is not None and time.monotonic() - began > stop_after):
                outcome.signal, outcome.unfinished = stop.signal, len(under_way)
                for reference in under_way:
                    ray.cancel(reference)  # raises KeyboardInterrupt there: the run saves itself, as after Ctrl-C
                ray.wait(list(under_way), num_returns=len(under_way), timeout=60)
                break
            ready, _ = ray.wait(list(under_way), timeout=LOOK)
            for reference in ready:
                run = under_way.pop(reference)
                failure, hopeless = _failure(ray, reference)
                if failure is None:
                    outcome.done.append(run)
                    log_of(out, run).unlink(missing_ok=True)
                    watch.say(f"done     {run.directory}")
                elif tries[run] < TRIES and not hopeless:
                    watch.say(f"again    {run.directory}: {failure}")
                    under_way[submit(run)] = run
                else:
                    said = f"{failure} (log: {log_of(out, run)})" if log_of(out, run).exists() else failure
                    outcome.failed[str(run.directory)] = said
                    watch.say(f"failed   {run.directory}: {said}")
            watch.show(len(outcome.done), list(under_way.values()))
    return outcome


def _task(config: dict[str, Any], directory: str, log: str) -> tuple[str | None, bool]:
    """On a node: carry out a run; why it failed, or None, and whether trying again is of no use."""
    try:
        carry_out(TrainConfig.from_json(config), Path(directory))
    except (Exception, Interrupted) as error:
        if not isinstance(error, Interrupted):
            Path(log).parent.mkdir(parents=True, exist_ok=True)
            with Path(log).open("a") as file:
                traceback.print_exc(file=file)
        return reason(error), isinstance(error, UsageError)
    return None, False


def _failure(ray: Any, reference: Any) -> tuple[str | None, bool]:
    try:
        said: tuple[str | None, bool] = ray.get(reference)
    except ray.exceptions.RayError as error:
        return str(error).strip().splitlines()[-1], False
    return said
