"""Annotations of ours: values and keys that the scheduler would not use are warned of, in its own words."""

from collections.abc import Mapping

from kai_solver.controller.admission.verdict import Verdict
from kai_solver.domain import GpuRequest
from kai_solver.kubeobjects.domains import read_may_use_spares
from kai_solver.kubeobjects.gpus import warn_of_bytes, with_row
from kai_solver.kubeobjects.maintenance import read_run_time_s
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.ownkeys import strays
from kai_solver.kubeobjects.placements import read_placement
from kai_solver.kubeobjects.raw import Raw

_OF_WORK = (read_placement, read_may_use_spares)
_READERS = {"Pod": (*_OF_WORK, read_run_time_s), "PodGroup": _OF_WORK}


def own_annotations(raw: Raw, kind: str) -> Verdict:
    """What of an object's annotations says nothing; those of queues and topologies are read with the rest of them."""
    annotations, notices = raw.strings("metadata.annotations"), Notices()
    for read in _READERS.get(kind, ()):
        read(annotations, kind, notices)
    values = tuple(notice.text for notice in notices.all())
    return Verdict(warnings=(*values, *strays(annotations, kind)))


def gpu_annotations(gpu: GpuRequest, annotations: Mapping[str, str]) -> Verdict:
    """The same of the row in which a pod wants its GPUs, and of their memory."""
    notices = Notices()
    with_row(gpu, annotations, "Pod", notices)
    warn_of_bytes(gpu, "Pod", notices)
    return Verdict(warnings=tuple(notice.text for notice in notices.all()))
