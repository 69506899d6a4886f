"""Behaviour cases as the runner needs them: how to run, what is expected, what KAI was seen to do.

The instance itself is read by ``instances_io``; only ``run``, ``expected``, ``actual`` and the two fields of a job that
matter between rounds are read here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import orjson
import zstandard
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kai_solver.domain import Action
from kai_solver.errors import InputError

CASE_SUFFIXES = (".json", ".json.zst")


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class RunSpec(_Part):
    """How a case is run: one session compared as it stands, or rounds on fresh sessions."""

    kind: Literal["single_session", "integration"] = "single_session"
    actions: tuple[Action, ...] = tuple(Action)
    rounds: int = Field(default=1, ge=1, le=1000)
    rounds_after_match: int = Field(default=0, ge=0, le=1000)
    delay_between_rounds_ms: float = 0.0


class Expectation(_Part):
    """What holds for a task, or for every task of a job.

    ``says`` is ours: words that the reason for waiting contains, its code or its message.
    """

    status: str | None = None
    node: str | None = None
    gpus_required: float | None = None
    gpus_accepted: float | None = None
    cpu_milli_required: float | None = None
    memory_required: float | None = None
    gpu_groups: tuple[str, ...] = ()
    dont_validate_gpu_group: bool = False
    last_start_older_than_s: float | None = None
    error_message: str | None = None
    says: tuple[str, ...] = ()
    numa_zones: tuple[int, ...] | None = None


class NodeExpectation(_Part):
    """What holds for a node after the last round."""

    idle_gpus: float | None = None
    releasing_gpus: float | None = None
    numa_zones_available: dict[int, dict[str, str]] | None = None


class CacheCalls(_Part):
    """Upper bounds, per cycle, of what a plan may do."""

    binds: int | None = None
    evictions: int | None = None
    pipelined: int | None = None


class Expected(_Part):
    """What a case asserts; what it does not name is free."""

    jobs: dict[str, Expectation] = {}
    tasks: dict[str, Expectation] = {}
    nodes: dict[str, NodeExpectation] = {}
    max_cache_calls: CacheCalls = CacheCalls()


class RecordedState(_Part):
    """Status and place of a task in KAI's outcome; ``was``: its status before the cycle, where that differs."""

    status: str
    was: str = ""
    node: str = ""
    gpu_groups: tuple[str, ...] = ()


class RecordedRound(_Part):
    """One cycle of KAI: states at its end, with what they were before where different."""

    tasks: dict[str, RecordedState] = {}


class Recorded(_Part):
    """What KAI did: its rounds up to the match, and the states that the expectation was held against."""

    rounds: tuple[RecordedRound, ...] = ()
    at_match: dict[str, RecordedState] | None = None


class _Task(_Part):
    id: str
    resource_claims: tuple[str, ...] = ()
    resource_claim_templates: dict[str, str] = {}


class _Job(_Part):
    name: str
    namespace: str = ""
    delete_when_evicted: bool = False
    tasks: tuple[_Task, ...] = ()


class _Instance(_Part):
    jobs: tuple[_Job, ...] = ()


class Statement(_Part):
    """What a case of our own says: what KAI does and how that is known, what we do and why.

    ``known_by``: ``read`` in its code or ``run``; ``reference``: where that is written down. ``needs_solver``: the
    greedy alone may come out different.
    """

    kai: str
    known_by: Literal["read", "run"]
    reference: str
    ours: str
    needs_solver: bool = False


class Case(_Part):
    """One case file."""

    schema_: str = Field(alias="schema")
    name: str = ""
    suite: str = ""
    run: RunSpec
    expected: Expected
    actual: Recorded | None = None
    statement: Statement | None = None
    instance: _Instance

    @property
    def lasting(self) -> frozenset[str]:
        """Names of jobs whose evicted pods stay ``Releasing`` between rounds."""
        return frozenset(job.name for job in self.instance.jobs if job.delete_when_evicted)

    @property
    def jobs(self) -> frozenset[str]:
        """Names of the jobs in the file."""
        return frozenset(job.name for job in self.instance.jobs)

    def is_without_namespace(self, job: str) -> bool:
        """True where the file gives the job no namespace (the reader then puts it into one)."""
        return any(j.name == job and not j.namespace for j in self.instance.jobs)

    @property
    def tasks(self) -> frozenset[str]:
        """Ids of the tasks in the file."""
        return frozenset(task.id for job in self.instance.jobs for task in job.tasks)

    @property
    def claiming(self) -> frozenset[str]:
        """Ids of the tasks that ask by resource claims, and names of their jobs."""
        found = set()
        for job in self.instance.jobs:
            claiming = {task.id for task in job.tasks if task.resource_claims or task.resource_claim_templates}
            found |= claiming | ({job.name} if claiming else set())
        return frozenset(found)


def find_cases(directory: Path) -> Iterator[Path]:
    """Case files under ``directory``, sorted; other JSON documents are passed over.

    Raises
    ------
    InputError
        There is no such directory, or no case file in it.
    """
    if not directory.exists():
        raise InputError("no such file or directory", file=str(directory), cure="Name a folder of case files")
    if directory.is_file():
        yield directory
        return
    found = False
    for path in sorted(p for suffix in CASE_SUFFIXES for p in directory.rglob(f"*{suffix}")):
        if _looks_like_case(path):
            found = True
            yield path
    if not found:
        raise InputError(
            "no behaviour case in this folder",
            file=str(directory),
            cure='A case has "schema": "kai-case/1", run, expected',
        )


def read_case(path: Path) -> Case:
    """Read one case file.

    Raises
    ------
    InputError
        It is not JSON, or a field of ``run``, ``expected`` or ``actual`` cannot be used.
    """
    try:
        return Case.model_validate(orjson.loads(_content(path)))
    except (OSError, zstandard.ZstdError) as error:
        raise InputError(f"cannot be read: {error}", file=str(path)) from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"not JSON: {error}", file=str(path)) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(first["msg"], file=str(path), field=field) from error


def _looks_like_case(path: Path) -> bool:
    """True for a document that asserts something, and for one that cannot be read (it is to be reported)."""
    try:
        content = _content(path)
    except (OSError, zstandard.ZstdError):
        return True
    return b'"kai-case/' in content[:4096] and b'"expected"' in content


def _content(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.name.endswith(".zst"):
        return zstandard.ZstdDecompressor().decompress(raw, max_output_size=1 << 30)
    return raw
