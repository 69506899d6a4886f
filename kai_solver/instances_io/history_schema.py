"""How one's own history of jobs is read: which column says what (``kai-history/v1``)."""

from typing import Any, Literal

from pydantic import Field, field_validator

from kai_solver.instances_io.fields import Amount, Millis, Strict
from kai_solver.instances_io.native_usage import UsageParamsDoc

HISTORY_FORMAT: Literal["kai-history/v1"] = "kai-history/v1"
GIB = 2**30


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
    gpus_are: Literal["per-pod", "per-job"] = "per-pod"
    queues: dict[str, str] = Field(default_factory=dict)
    """Queue of the cluster by what the history says; others keep their name."""
    user_label: str = "user"
    """Label of the pods that has the user."""
    cpu: Millis = 4000
    memory: Amount = 16 * GIB
    """Of each pod, where no column says it."""

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
