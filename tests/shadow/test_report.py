"""The report: the summary first, names without uids, and nothing of a name becomes part of the page."""

from kai_solver.shadow.comparing import compare
from kai_solver.shadow.lines import Begin
from kai_solver.shadow.reporting import document_of_report, in_short, page_of_report, text_of_report
from tests.shadow.test_comparing import END, T0, binds, compared, evicts, leaves_pending, left, look, marked, places

UID = "0a1b2c3d-1111-2222-3333-444455556666"


def test_the_summary_counts_gangs_evictions_and_hours() -> None:
    first = places("t", 3, gpus=16.0), look(2), binds("t", 1803), leaves_pending("u", 4), look(9), binds("u", 10)
    evicted = marked("w", 40), left("w", 40, "deleted"), left("w", 40, "deleted", 1), evicts("s", 41), look(41)
    times = "The median is 30 min earlier; the sum is 8.0 GPU-hours earlier."
    said = in_short(compared(*first, *evicted, look(3600)))
    assert said == [
        "4 gangs compared: 0 fared the same, 2 would have fared better with kai-solver, 2 worse.",
        "2 pods were evicted; kai-solver would have evicted or moved 1: 1 fewer.",
        f"1 gang would have started at another time: 1 earlier, 0 later. {times}",
    ]


def test_nothing_to_compare_is_said() -> None:
    found = compare([Begin(at=T0), look(1)])
    assert in_short(found) == ["No gang waited or was evicted in this time, so there is nothing to compare."]
    assert document_of_report(found)["by_gang"] == []


def test_names_have_no_uid_for_people_and_are_whole_for_programs() -> None:
    gang = f"ns/pg-train-{UID}"
    found = compared(places(gang, 3), look(2), END)
    assert "ns/train  (q)  would have had its places" in text_of_report(found)
    assert UID not in page_of_report(found)
    assert [one["gang"] for one in document_of_report(found)["by_gang"]] == [gang]


def test_gangs_that_fared_the_same_are_listed_on_request() -> None:
    found = compared(leaves_pending("g", 3), look(2), END)
    assert "waits with both" not in text_of_report(found)
    assert "waits with both (OverLimit)" in text_of_report(found, full=True)


def test_the_page_has_no_markup_of_others_and_needs_no_other_file() -> None:
    page = page_of_report(compared(places("<script>alert(1)</script>", 3), look(2), END))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page
    assert page.index("gang compared") < page.index("<table>")
