"""Jobs and outages drawn at random: every workload has random numbers of its own, from the seed and its name.

So a workload that is added, or taken away, changes nothing about the others.
"""

import zlib
from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.random import Generator

from kai_solver.errors import InputError
from kai_solver.instances_io.scenario_schema import ArrivalsDoc, GenerateDoc, RandomFailuresDoc, RuntimeDoc
from kai_solver.lab.simulate.making import JobMaker, PodSize
from kai_solver.lab.simulate.scenario import Job, Outage
from kai_solver.units import MILLI

T = TypeVar("T")

_MOST_JOBS = 1_000_000


def stream(seed: int, name: str) -> Generator:
    """Random numbers of one workload."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def generated_jobs(doc: GenerateDoc, maker: JobMaker, seed: int, duration_s: float | None) -> Iterator[Job]:
    """Jobs of a generator.

    Raises
    ------
    InputError
        Neither a count nor a time says where it ends; or weights that are all 0.
    """
    draw = stream(seed, doc.name)
    for number, arrival_s in enumerate(arrivals(doc.arrivals, doc.count, duration_s, draw, doc.name)):
        pods = int(pick(doc.pods, draw, f"{doc.name}.pods"))
        gpus = float(pick(doc.gpus, draw, f"{doc.name}.gpus"))
        size = PodSize(*_devices(gpus, doc.name), doc.cpu, doc.memory)
        enough = (pods if doc.gang else min(1, pods)) if doc.min_pods is None else min(doc.min_pods, pods)
        yield maker.job(
            doc,
            f"{doc.name}-{number:05}",
            arrival_s,
            runtime(doc.runtime, draw),
            [size] * pods,
            queue=str(pick(doc.queue, draw, f"{doc.name}.queue")),
            min_member=enough,
            topology=doc.topology,
        )


def arrivals(
    doc: ArrivalsDoc, count: int | None, duration_s: float | None, draw: Generator, name: str
) -> Iterator[float]:
    """Moments, in order."""
    end_s = duration_s if doc.end is None else doc.end
    if count is None and (end_s is None or doc.process == "batch"):
        cure = "Give a count, or a duration of the scenario"
        raise InputError("nothing says how many jobs arrive", field=f"workloads.{name}", cure=cure)
    at_s, gap_s = doc.start, 3600.0 / doc.per_hour
    for number in range(_MOST_JOBS if count is None else count):
        if doc.process == "poisson":
            at_s += float(draw.exponential(gap_s))
        elif doc.process == "regular" and number:
            at_s += gap_s
        if end_s is not None and at_s >= end_s:
            return
        yield at_s
    if count is None:
        cure = "Give a count, or fewer arrivals per hour"
        raise InputError(f"more than {_MOST_JOBS:,} jobs would arrive", field=f"workloads.{name}", cure=cure)


def runtime(doc: RuntimeDoc, draw: Generator) -> float:
    """One run time, seconds."""
    match doc.distribution:
        case "fixed":
            seconds = doc.typical
        case "exponential":
            seconds = float(draw.exponential(doc.typical))
        case _:
            seconds = float(draw.lognormal(np.log(doc.typical), doc.sigma))
    return min(max(seconds, doc.at_least), doc.at_most)


def pick(options: T | dict[T, float], draw: Generator, field: str) -> T:
    """One of ``options`` by weight, or what is given where there is no choice.

    Raises
    ------
    InputError
        No weight is above 0.
    """
    if not isinstance(options, dict):
        return options
    keys: list[T] = list(options)
    weights = np.array([options[key] for key in keys], dtype=np.float64)
    if not weights.sum() > 0:
        raise InputError("has no weight above 0", field=f"workloads.{field}", cure="Give at least one")
    return keys[int(draw.choice(len(keys), p=weights / weights.sum()))]


def outages(doc: RandomFailuresDoc, nodes: tuple[str, ...], seed: int, duration_s: float | None) -> Iterator[Outage]:
    """Failures of every node until the scenario ends.

    Raises
    ------
    InputError
        The scenario has no duration: they would never end.
    """
    if duration_s is None:
        cure = "Give the scenario a duration"
        raise InputError("random failures need an end", field="failures.random", cure=cure)
    for name in nodes:
        draw = stream(seed, f"failures/{name}")
        at_s = float(draw.exponential(doc.mean_between))
        while at_s < duration_s:
            until_s = at_s + float(draw.exponential(doc.mean_repair))
            yield Outage(name, at_s, until_s)
            at_s = until_s + float(draw.exponential(doc.mean_between))


def _devices(gpus: float, name: str) -> tuple[int, int]:
    """(devices, thousandths of each) of GPUs per pod."""
    if gpus < 0 or gpus > MILLI or (gpus > 1 and gpus != int(gpus)):
        problem = f"{gpus:g} GPUs are no request"
        raise InputError(problem, field=f"workloads.{name}.gpus", cure="Give a whole number, or a part of one GPU")
    if gpus == 0:
        return 0, MILLI
    return (int(gpus), MILLI) if gpus >= 1 else (1, max(1, round(gpus * MILLI)))
