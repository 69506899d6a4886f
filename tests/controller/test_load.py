"""The load of `tests.controller.load`, a tenth of it: valid clients get answers, and nothing is kept of the others."""

import pytest

from tests.controller import load

pytestmark = pytest.mark.slow


def test_honest_callers_are_answered_and_decisions_go_on() -> None:
    found = load.run(slow=100, large=20, seconds=8.0)
    assert found.quiet.failures == found.loaded.failures == []
    assert found.loaded.reviews_s
    assert found.loaded.first_reviews_s
    assert found.loaded.probes_s
    assert found.cycles > 0
    assert found.more_mib < load.MOST_MIB
