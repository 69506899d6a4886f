"""KAI's fit errors joined to the texts that its events, conditions and tests hold (``common_info/job_errors.go``)."""

from collections import Counter
from collections.abc import Sequence

from kai_solver.domain import FitError

NO_POD_GROUP = "Unable to schedule podgroup"
"""KAI's reason where there are several errors, or none."""


def detailed_message(errors: Sequence[FitError]) -> str:
    """One line an error, sorted, after the reason: what ``--detailed-fit-errors`` shows."""
    lines = sorted(f"\n{_detailed(error)}." for error in errors)
    return f"\n{_reason(errors)}." + "".join(lines)


def short_message(errors: Sequence[FitError]) -> str:
    """The reason, then every distinct text with its count where it is more than one."""
    counts = Counter(text for error in errors for text in error.messages)
    lines = sorted(f"{count} {text}" if count > 1 else text for text, count in counts.items())
    return _reason(errors) + (": " + ". \n".join(lines) + "." if lines else "")


def _reason(errors: Sequence[FitError]) -> str:
    return errors[0].reason if len(errors) == 1 else NO_POD_GROUP


def _detailed(error: FitError) -> str:
    text = ", ".join(error.detailed or error.messages)
    if error.subgroup not in ("", "default"):
        text = f"subgroup {error.subgroup}: {text}"
    return f"<{error.domain}>: {text}" if error.domain else text
