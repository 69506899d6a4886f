"""Rule ``devices`` where it is not known which GPUs pods have."""

import pytest

from kai_solver.check.devices import Board
from kai_solver.domain import GpuRequest
from kai_solver.units import MILLI
from tests.support.builders import a_node, a_pod

HALF_OF_TWO = GpuRequest(2, MILLI // 2)


def a_board(*requests: GpuRequest, gpus: int = 4) -> Board:
    board = Board(a_node("n", gpus))
    for number, request in enumerate(requests):
        board.seat(a_pod(f"p{number}", request, "n"))
    return board


@pytest.mark.parametrize("certainly", [False, True])
@pytest.mark.parametrize(
    ("requests", "fits"),
    [
        ([HALF_OF_TWO], True),
        ([GpuRequest(2), HALF_OF_TWO], True),
        ([GpuRequest(3), HALF_OF_TWO], False),  # One device is left, and it shares two.
        ([GpuRequest(2), HALF_OF_TWO, HALF_OF_TWO], True),
        ([GpuRequest(3), GpuRequest(1, MILLI // 2), GpuRequest(1, MILLI // 2)], True),
        ([GpuRequest(2), HALF_OF_TWO, HALF_OF_TWO, GpuRequest(1, 100)], False),
    ],
)
def test_shares_of_one_pod_are_on_devices_of_their_own(requests: list[GpuRequest], fits: bool, certainly: bool) -> None:
    assert a_board(*requests).seats_unknown(certainly=certainly) is fits
