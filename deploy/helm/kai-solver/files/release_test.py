"""`helm test`: the release serves its metrics, and a replica leads. Standard library only."""

import os
import re
import sys
import time
import urllib.error
import urllib.request

LIMIT_S = float(os.environ.get("LIMIT_S", "120"))
MUST_LEAD = os.environ.get("MUST_LEAD", "1") == "1"
"""A dry run has no leader."""

LEADER = re.compile(r"_solver_leader(\{[^}]*\})? 1(\.0)?$", re.MULTILINE)


def problem(url: str) -> str:
    """Why the release is not well; empty if it is."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - the chart writes the address
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return ""  # metrics are guarded (settings.metrics_authorization): it is up, and says no more
        return f"{url} answers {error.code}"
    except OSError as error:
        return f"{url} does not answer: {error}"
    if MUST_LEAD and not LEADER.search(text):
        return f"{url} answers, but this replica does not lead: kubectl get leases"
    return ""


def main() -> int:
    """Ask until the answer is good: any replica may be asked, and one of them leads."""
    url, ends_s, why = os.environ["METRICS_URL"], time.monotonic() + LIMIT_S, ""
    while time.monotonic() < ends_s:
        why = problem(url)
        if not why:
            print("kai-solver is up")
            return 0
        time.sleep(1)
    print(why, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
