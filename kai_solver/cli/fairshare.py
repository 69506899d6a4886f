"""``kai-solver fairshare``: the queue tree in numbers."""

from kai_solver.cli.exits import Exit, guarded
from kai_solver.cli.options import AsJson, InputLimit, Instance, Output, Quiet


@guarded
def fairshare(
    instance: Instance,
    input_limit: InputLimit = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Show the queue tree: weight, past usage, quota, limit, request, fair share and allocation of every resource.

    GPUs and CPU cores are in units of one, and memory in GB (10^9 bytes). In JSON, CPU and GPU are in thousandths,
    memory is in bytes, and -1 is unlimited.

    \b
    Examples:
      kai-solver fairshare snapshot.zip
      kai-solver fairshare cluster.yaml --json | jq '.queues[] | select(.name == "research")'
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import parse_limits, tell_notices
    from kai_solver.errors import InputError
    from kai_solver.explaining import fair_share_lines
    from kai_solver.instances_io import load_instance

    snapshot = load_instance(instance, limits=parse_limits(input_limit)).snapshot
    tell_notices(snapshot, quiet=quiet)
    lines = fair_share_lines(snapshot)
    if not lines:
        cure = "Add them: kubectl get queues.scheduling.run.ai -o yaml"
        raise InputError("has no queues that take part", file=str(instance), cure=cure)
    members = {"k_value": snapshot.policy.k_value, "queues": [entry.document() for entry in lines]}
    if deliver(document("fairshare", members), as_json=as_json, output=output):
        from kai_solver.cli.console import line, open_console
        from kai_solver.cli.explained import fair_share_terms, queue_table

        console = open_console()
        console.print(queue_table(lines))
        if not quiet:
            line(console, fair_share_terms(snapshot.policy.k_value))
    return Exit.FINE
