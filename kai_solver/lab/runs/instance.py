"""Reading what a task is about."""

from dataclasses import replace

from kai_solver.errors import InputError
from kai_solver.instances_io import Loaded, load_instance
from kai_solver.lab.generate import generated, made_real
from kai_solver.lab.runs.task import Generated, InstanceFile


def read_instance(source: InstanceFile | Generated) -> Loaded:
    """Read or generate the instance.

    Raises
    ------
    InputError
        It cannot be used; names file, field and cure.
    """
    if isinstance(source, InstanceFile):
        loaded = load_instance(source.path)
        place = str(source.path)
    else:
        loaded = Loaded(generated(source.generator, source.draw), "native")
        place = source.name
    if source.real is not None:
        loaded = replace(loaded, snapshot=made_real(loaded.snapshot, source.real, source.draw))
    if not loaded.snapshot.nodes:
        cure = "Add the nodes of the cluster: kubectl get nodes -o yaml"
        raise InputError("has no nodes", file=place, cure=cure)
    return loaded
