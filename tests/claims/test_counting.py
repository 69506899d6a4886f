"""The rows that count sets of devices say exactly what a matching says (Hall), and matchings are found."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from kai_solver.claims.rows import close
from kai_solver.claims.seating import seat

DEVICES = 5
SETS = st.integers(min_value=1, max_value=(1 << DEVICES) - 1)


def brute_force(wishes: list[int]) -> bool:
    """Every way to give out devices is tried."""
    return any(
        all(wish >> device & 1 for wish, device in zip(wishes, order, strict=False))
        for order in permutations(range(DEVICES), len(wishes))
    )


@given(st.lists(SETS, min_size=1, max_size=5))
def test_a_matching_is_found_where_there_is_one(wishes: list[int]) -> None:
    seats = seat(wishes)
    assert (seats is not None) == brute_force(wishes)
    if seats is not None:
        assert len(set(seats)) == len(wishes)
        assert all(wish >> device & 1 for wish, device in zip(wishes, seats, strict=True))


@given(st.lists(SETS, min_size=1, max_size=5), st.integers(min_value=0, max_value=(1 << DEVICES) - 1))
def test_counting_unions_is_as_good_as_trying_everything(wishes: list[int], held: int) -> None:
    """Devices in ``held`` are taken: the wishes can be met with the others exactly where every row has room."""
    rows, left_out = close(dict.fromkeys(wishes), most=1000)
    assert not left_out
    free = ((1 << DEVICES) - 1) & ~held
    fits = all(sum(not wish & ~row for wish in wishes) <= (row & free).bit_count() for row in rows)
    assert fits == brute_force([wish & free for wish in wishes])


def test_sets_without_a_common_device_need_no_union() -> None:
    assert close([0b0011, 0b1100]) == ([0b0011, 0b1100], [])
    assert sorted(close([0b0011, 0b0110])[0]) == [0b0011, 0b0110, 0b0111]


def test_sets_that_would_need_too_many_rows_are_left_out_and_the_rest_is_kept() -> None:
    overlapping = [1 | 1 << i for i in range(1, 9)]
    rows, left_out = close(overlapping, most=20)
    assert rows[0] == overlapping[0]
    assert len(rows) <= 20
    assert left_out
    assert set(left_out) < set(overlapping)


def test_the_first_wish_gets_the_first_device_that_leaves_room_for_the_others() -> None:
    assert seat([0b011, 0b001]) == [1, 0]
    assert seat([0b011, 0b110]) == [0, 1]
    assert seat([]) == []
    assert seat([0b0]) is None
