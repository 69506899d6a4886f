"""How one's own history of jobs is read: which column says what (``kai-history/v1``)."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, field_validator

from kai_solver.instances_io.fields import Amount, Millis, Strict
from kai_solver.instances_io.native_usage import UsageParamsDoc
from kai_solver.units import MILLI

HISTORY_FORMAT: Literal["kai-history/v1"] = "kai-history/v1"
GIB = 2**30
LATEST_S = 1e11


class ColumnsDoc(Strict):
    """Names of the columns of a CSV file; empty: the file has none."""

    submit: str = ""
    """When the job was submitted; default: when it started."""
    start: str = "start"
    end: str = "end"
    pods: str = ""
    """Pods of a job, or nodes; default: one."""
    gpus: str = "gpus"
    cpu: str = ""
    memory: str = ""
    queue: str = ""
    user: str = ""
    name: str = ""


class HistoryReadingDoc(Strict):
    """How a history is read. Of Kubernetes objects only the queues matter."""

    columns: ColumnsDoc = ColumnsDoc()
    delimiter: str = ","
    time_format: str = ""
    """As of Python's ``strptime``. Default: epoch seconds, or RFC 3339."""
    time_zone: str = "UTC"
    """Of times that name none, as ``Europe/Berlin``."""
    time_zero: float | str | None = None
    """Moment at which an SWF log or the openb trace begins; default: what the log says of itself, or the epoch."""
    gpus_per_processor: int = Field(default=1, ge=1, le=MILLI)
    """Of an SWF log."""
    gpus_per_pod: int = Field(default=8, ge=1, le=MILLI)
    """Most GPUs of a pod of an SWF log's job."""
    gpus_are: Literal["per-pod", "per-job"] = "per-pod"
    queues: dict[str, str] = Field(default_factory=dict)
    """Queue of the cluster by what the history says; others keep their name."""
    user_label: str = "user"
    """Label of the pods that has the user."""
    cpu: Millis = 4000
    memory: Amount = 16 * GIB
    """Of each pod, where no column says it."""

    def zero_s(self) -> float:
        """The moment at which the times of a trace begin, epoch seconds."""
        if isinstance(self.time_zero, str):
            return datetime.fromisoformat(self.time_zero).timestamp()
        return self.time_zero or 0.0

    @field_validator("time_zero")
    @classmethod
    def _is_moment(cls, value: float | str | None) -> float | str | None:
        """Epoch seconds, or RFC 3339 with a zone."""
        if isinstance(value, str):
            try:
                is_moment = datetime.fromisoformat(value).tzinfo is not None
            except ValueError:
                is_moment = False
        else:
            is_moment = value is None or 0 <= value <= LATEST_S
        if not is_moment:
            raise ValueError(f"{value!r} is no moment: write epoch seconds, or 2026-11-09T00:00:00Z")
        return value

    @field_validator("delimiter")
    @classmethod
    def _is_one_character(cls, value: str) -> str:
        if len(value) != 1 or value in '"\r\n':
            raise ValueError(f"{value!r} is not one character that divides columns")
        return value


class HistoryMappingDoc(HistoryReadingDoc):
    """A file of its own with how to read a history, and how the past counts."""

    format: Literal["kai-history/v1"]
    usage: UsageParamsDoc = UsageParamsDoc()


def history_schema() -> dict[str, Any]:
    """JSON Schema of such a file."""
    schema = HistoryMappingDoc.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
