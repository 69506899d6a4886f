"""``kai-solver compile``: machine code for large clusters, once."""

import time
from typing import Annotated

import typer

from kai_solver.cli.exits import Exit, guarded
from kai_solver.cli.options import AsJson, Output, Quiet


@guarded
def compile_kernels(
    check: Annotated[
        bool, typer.Option("--check", help="Only check whether they are compiled; exit code 1 if not.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Compile again, even if it was done before.")] = False,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Compile the kernels that decide large clusters to machine code, and keep them in a file.

    It takes one to three minutes, once for each version of kai-solver. Every command works without it. Plans for large
    clusters are then worse, because the search of chains gets less far. Small clusters never use compiled kernels. The
    file runs on every CPU of this architecture. It is in ~/.cache/kai-solver/kernels, or in the folder that the
    environment variable KAI_SOLVER_KERNELS names. At run time that folder is only read.

    \b
    Examples:
      kai-solver compile                                        a second time it does nothing
      kai-solver compile --check && echo ready
      KAI_SOLVER_KERNELS=/opt/kernels kai-solver compile        for an image, which sets the same variable

    Exit code 1: with --check, they are not compiled.
    """
    from kai_solver import compiled
    from kai_solver.cli.documents import deliver, document

    where, was_there, took_s = compiled.file(), compiled.is_cached(), 0.0
    if not check and (again or not was_there):
        began_s = time.perf_counter()
        compiled.compile_all()
        took_s = time.perf_counter() - began_s
    is_there = was_there or not check
    members = {"compiled": is_there, "file": str(where), "seconds": round(took_s, 3)}
    if deliver(document("compilation", members), as_json=as_json, output=output) and not quiet:
        if not is_there:
            typer.echo(f"not compiled: there is no {where}, or it is incomplete")
        else:
            typer.echo(f"compiled in {took_s:.1f} s: {where}" if took_s else f"compiled before: {where}")
    return Exit.FINE if is_there else Exit.FINDINGS
