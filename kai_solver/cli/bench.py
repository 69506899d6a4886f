"""``kai-solver bench``: instances x models x seeds, one table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.options import AsJson, Budget, Quiet

if TYPE_CHECKING:
    from kai_solver.bench import Run


@guarded
def bench(
    paths: Annotated[list[Path], typer.Argument(help="Instances, or folders of them.")],
    models: Annotated[str, typer.Option("--models", help="Models to compare, like default,fast.")] = "default",
    against: Annotated[
        str, typer.Option("--against", help="Model that the others are compared with; run as well.")
    ] = "greedy-only",
    seeds: Annotated[str, typer.Option("--seeds", help="One seed, a list 1,2,3 or a range 1..5.")] = "1",
    budget: Budget = None,
    cold: Annotated[bool, typer.Option("--cold", help="Time the whole process as well, once a seed.")] = False,
    check_peers: Annotated[
        bool, typer.Option("--check-peers", help="Exit with 1 when a recorded outcome of KAI is better than ours.")
    ] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one CSV line a run.")] = False,
    quiet: Quiet = False,
    generate: Annotated[
        str | None, typer.Option("--generate", help="Write this entry of the set as an instance, and measure nothing.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Where --generate writes: .json or .json.zst.")
    ] = None,
) -> Exit:
    """Measure models on instances: time, memory, what is placed and disturbed, what is proven, bounds and gaps.

    Every (instance, model) runs in a process of its own with a warm engine: one unmeasured cycle, then one a seed;
    figures are medians over the seeds. Where <name>.kai-*.json stands beside an instance, it is compared with: KAI is
    better when it places more gangs, or evicts less for the same gangs.

    \b
    Examples:
      kai-solver bench instances/bench --models default,fast --seeds 1..5 --budget 2s
      kai-solver bench instances/bench --check-peers --csv > bench.csv
      kai-solver bench instances/bench/sets/scale.yaml --generate loaded-1000 --seeds 7 --output loaded.json.zst
    """
    if generate is not None:
        return _write_generated(paths, generate, seeds, output)
    from kai_solver.bench import Job, find_instances, measure
    from kai_solver.cli.bench_report import print_csv, print_json, print_table
    from kai_solver.cli.inputs import parse_budget_s

    names = list(dict.fromkeys([against, *(name.strip() for name in models.split(","))]))
    budget_s = parse_budget_s(budget) if budget is not None else None
    jobs = [
        Job(path, name, parse_seeds(seeds), budget_s, cold=cold) for path in find_instances(paths) for name in names
    ]
    runs: list[Run] = []
    for number, job in enumerate(jobs, 1):
        if not quiet:
            typer.echo(f"[{number}/{len(jobs)}] {job.instance.name} with {job.model}", err=True)
        runs += measure(job)
    if as_csv:
        print_csv(runs)
    elif as_json:
        print_json(runs, against)
    else:
        print_table(runs, against)
    return _peers_verdict(runs) if check_peers else Exit.FINE


def _write_generated(paths: list[Path], name: str, seeds: str, output: Path | None) -> Exit:
    """One instance of a set, in the native format."""
    import orjson

    from kai_solver.bench import generated, read_set
    from kai_solver.cli.planfiles import write_bytes
    from kai_solver.errors import InputError
    from kai_solver.instances_io import native_from_snapshot

    seed, *more = parse_seeds(seeds)
    if output is None or more or len(paths) != 1:
        problem = "one set, one seed and an output are needed"
        raise InputError(problem, field="--generate", cure="SET.yaml --generate NAME --seeds 1 --output FILE")
    entry = read_set(paths[0]).entry(name)
    if entry.generate is None:
        raise InputError(f"{name} is a stored file: {entry.file}", field="--generate", cure="Use that file")
    snapshot = generated(entry.generate, seed)
    write_bytes(orjson.dumps(native_from_snapshot(snapshot)) + b"\n", output)
    return Exit.FINE


def _peers_verdict(runs: "list[Run]") -> Exit:
    worse = [f"{run.instance} with {run.model}, seed {run.seed}: {text}" for run in runs for text in run.worse_than]
    for text in worse:
        complain(text)
    return Exit.FINDINGS if worse else Exit.FINE


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds of ``3``, ``1,2,5`` or ``1..5``.

    Raises
    ------
    InputError
        Not a seed, or an empty range.
    """
    from kai_solver.errors import InputError

    try:
        first, dots, last = text.partition("..")
        seeds = range(int(first), int(last) + 1) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise InputError(f"{text!r} are no seeds", field="--seeds", cure="Write 3, or 1,2,5, or 1..5")
    return tuple(seeds)
