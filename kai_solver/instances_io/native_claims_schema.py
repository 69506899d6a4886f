"""The native format's sections about resource claims; Kubernetes' words where it has some."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from kai_solver.errors import InputError
from kai_solver.instances_io.fields import Strict
from kai_solver.units import parse_quantity


class DeviceClassDoc(Strict):
    """A DeviceClass: CEL selectors that must all hold."""

    name: str = Field(min_length=1)
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    """A resource of pods that asks for this class (KEP-5004); GPUs are ``gpu``."""
    problem: str = ""


class VersionDoc(Strict):
    """A semantic version."""

    version: str


class OfferedDeviceDoc(Strict):
    """A device, or ``count`` like it with ``{i}`` in the name. Attributes without a domain are of the driver's."""

    name: str = Field(min_length=1)
    count: int = Field(default=1, ge=0, le=10_000)
    attributes: dict[str, bool | int | str | VersionDoc] = Field(default_factory=dict)
    capacity: dict[str, str | int] = Field(default_factory=dict)

    @field_validator("capacity")
    @classmethod
    def _quantities(cls, value: dict[str, str | int]) -> dict[str, str | int]:
        for name, amount in value.items():
            try:
                parse_quantity(amount)
            except InputError as error:
                raise ValueError(f"{name}: {error}") from error
        return value


class SliceDoc(Strict):
    """A ResourceSlice of a node, or of ``count`` nodes with ``{i}`` in the node's name. Pool: the node's name."""

    driver: str = Field(min_length=1)
    node: str = Field(min_length=1)
    count: int = Field(default=1, ge=0, le=100_000)
    pool: str = ""
    devices: tuple[OfferedDeviceDoc, ...] = ()


class DeviceRequestDoc(Strict):
    """``count`` devices of a class (or ``all`` that the node has) that also match ``selectors``."""

    name: str = "devices"
    device_class: str
    count: int = Field(default=1, ge=0, le=100_000)
    all: bool = False
    selectors: tuple[str, ...] = ()
    problem: str = ""


def _as_request(value: Any) -> Any:
    return {"deviceClass": value} if isinstance(value, str) else value


Request = Annotated[DeviceRequestDoc, BeforeValidator(_as_request, json_schema_input_type=DeviceRequestDoc | str)]


class TemplateDoc(Strict):
    """A ResourceClaimTemplate: every pod that names it gets a claim of its own."""

    name: str = Field(min_length=1)
    namespace: str = "default"
    requests: tuple[Request, ...] = ()


class AllottedDoc(Strict):
    """A device that a claim holds; the pool is the node's name where not given."""

    request: str = "devices"
    driver: str
    pool: str
    device: str


class ClaimDoc(Strict):
    """A ResourceClaim; ``own``: made for one pod, so that its queue needs no label."""

    name: str = Field(min_length=1)
    namespace: str = "default"
    labels: dict[str, str] = Field(default_factory=dict)
    requests: tuple[Request, ...] = ()
    allocation: tuple[AllottedDoc, ...] | None = None
    reserved_for: tuple[str, ...] = ()
    """Names of pods."""
    own: bool = False
    extended: str = ""
    problem: str = ""
