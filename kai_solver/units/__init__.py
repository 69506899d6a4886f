"""Quantities as integers with declared units, and resource vectors in a fixed order."""

from kai_solver.units.go_text import CORES, FIRST_S, GB, LAST_S, go_duration, go_float, humanized, rfc3339
from kai_solver.units.gpus import GPU_RESOURCES, SHARED_GPU_RESOURCES, mig_slices, shared_gpu_resource
from kai_solver.units.quantity import LONGEST_NUMBER, format_amount, parse_duration_s, parse_quantity, parse_whole
from kai_solver.units.resources import (
    CPU,
    GPU,
    MEMORY,
    MILLI,
    PODS,
    QUEUE_RESOURCES,
    UNLIMITED,
    ResourceSchema,
    Vector,
)
from kai_solver.units.words import counted, form

__all__ = [
    "CORES",
    "CPU",
    "FIRST_S",
    "GB",
    "GPU",
    "GPU_RESOURCES",
    "LAST_S",
    "LONGEST_NUMBER",
    "MEMORY",
    "MILLI",
    "PODS",
    "QUEUE_RESOURCES",
    "SHARED_GPU_RESOURCES",
    "UNLIMITED",
    "ResourceSchema",
    "Vector",
    "counted",
    "form",
    "format_amount",
    "go_duration",
    "go_float",
    "humanized",
    "mig_slices",
    "parse_duration_s",
    "parse_quantity",
    "parse_whole",
    "rfc3339",
    "shared_gpu_resource",
]
