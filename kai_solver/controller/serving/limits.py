"""What clients of one listener may use, all together and each."""

import resource
from dataclasses import dataclass, replace

FEW_FILES = 8
"""A listener uses at most one in this many of the process's files: others are connections to the API server."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one listener.

    Parameters
    ----------
    connections
        Open at one time, counted from the accept on. An open TLS connection costs 32 KiB, a plain one 5 KiB
        (22 November 2026, with `listener.TLS_BUFFER_KIB`).
    grace_s
        A connection is kept for this time even if others wait for its place.
    waiting_bytes
        Total bytes of requests that are incomplete, or wait for a thread. If there are more, the connection with the
        most bytes times seconds is dropped: large or slow requests never keep out small and quick ones.
    head_bytes, body_bytes
        Of one request. An admission review has an object before and after its change; neither can be over 3 MiB.
    large_bytes, large_s
        Bodies over this size are read and handled one at a time, each within ``large_s``. Meanwhile the others are
        not read, and cost neither memory nor CPU time.
    head_s
        From the accept, or the first byte of a further request, to the end of the head; a TLS handshake included.
    body_s
        From the end of the head to the end of the body.
    answer_s
        From the first byte of the answer to its last.
    idle_s
        Between an answer and the next request; an API server keeps connections for 90 s.
    threads
        Requests that are handled at one time.
    """

    connections: int = 1536
    grace_s: float = 0.5
    waiting_bytes: int = 12 << 20
    head_bytes: int = 16 << 10
    body_bytes: int = 8 << 20
    large_bytes: int = 256 << 10
    large_s: float = 1.0
    head_s: float = 5.0
    body_s: float = 10.0
    answer_s: float = 60.0
    idle_s: float = 100.0
    threads: int = 8

    def affordable(self) -> "Limits":
        """The same, with no more connections than the process has files for."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = files // FEW_FILES if files != resource.RLIM_INFINITY else self.connections
        return replace(self, connections=min(self.connections, max(8, most)))
