"""CEL selectors: what Kubernetes' examples use, strictness, and what is not understood."""

import subprocess
import sys

import pytest

from kai_solver.claims import SelectorError, selects
from kai_solver.claims.cel import unbound
from kai_solver.domain import ClaimDevice, Version

DEVICE = ClaimDevice(
    "n0",
    "gpu.example.com",
    "n0",
    "gpu-0",
    {
        "gpu.example.com/productName": "Example A100",
        "gpu.example.com/index": 3,
        "gpu.example.com/ecc": True,
        "gpu.example.com/driverVersion": Version("550.54.15"),
    },
    {"gpu.example.com/memory": "40Gi"},
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ("device.driver == 'nic.example.com'", False),
        ('device.attributes["gpu.example.com"].productName.lowerAscii().matches("^.*a100.*$")', True),
        ('device.attributes["gpu.example.com"].index in [1, 2]', False),
        ('device.attributes["gpu.example.com"].ecc', True),
        ('"other.example.com" in device.attributes && device.attributes["other.example.com"].x == 1', False),
        ('has(device.attributes["other.example.com"].x)', False),
        ('device.capacity["gpu.example.com"].memory.compareTo(quantity("40960Mi")) == 0', True),
        ('device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))', False),
        ('device.capacity["gpu.example.com"].memory.isLessThan(quantity("80Gi"))', True),
        ('device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("550.9.0"))', True),
        ('device.attributes["gpu.example.com"].driverVersion.compareTo(semver("550.54.15-rc.1")) > 0', True),
        ('cel.bind(own, device.attributes["gpu.example.com"], own.ecc && own.index == 3)', True),
        ('cel.bind(a, device.driver, cel.bind(b, a + ",)", b == "gpu.example.com,)"))', True),
    ],
)
def test_selectors_of_kubernetes_examples(expression: str, expected: bool) -> None:
    assert selects(expression, DEVICE) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver ==",
        "1 + 1",
        'device.attributes["gpu.example.com"].productName == 1',
        'device.attributes["gpu.example.com"].missing == "x"',
        'device.attributes["other.example.com"].x == 1',
        'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("much"))',
        "device.unknown()",
        'device.attributes[?"gpu.example.com"].?ecc.orValue(false)',
        "device.driver == '" + "x" * 11_000,
    ],
)
def test_what_has_no_answer_is_an_error_and_not_false(expression: str) -> None:
    with pytest.raises(SelectorError):
        selects(expression, DEVICE)


def test_a_bound_name_in_a_string_is_left_alone() -> None:
    expression = 'device.driver == "cel.bind(a, b, c)"'
    assert unbound(expression) == expression


def test_the_library_is_not_loaded_for_drivers_alone() -> None:
    code = (
        "import sys; from kai_solver.claims import selects; from kai_solver.domain import ClaimDevice;"
        "assert selects('device.driver == \"d\"', ClaimDevice('n', 'd', 'n', '0')); assert 'celpy' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
