"""What the process may use: set once, before anything else runs."""

import contextlib
import ctypes
import mmap
import resource
from collections.abc import Iterator
from pathlib import Path

MANY_FILES = 65_536
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""Parameters of glibc's ``mallopt``."""

_ARENAS = 2
_MAPPED = 2 << 20


def open_more_files() -> None:
    """Raise the limit of open files as far as the process may, as Go programs do, and as far as can be of use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, MANY_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def give_memory_back() -> None:
    """Have glibc keep less freed memory; with another C library, do nothing.

    By default glibc keeps up to eight heaps for each core, and large blocks in them. 150 clients that repeatedly sent
    8 MiB, read one at a time, left 165 MiB behind, and leave 19 MiB with this (22 November 2026).
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_ARENA_MAX, _ARENAS)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED)


def give_code_back(library: str) -> None:
    """Have the kernel forget the code and the constants of a library that was needed once.

    Compiled kernels are linked by LLVM, and run without it: 51 MiB of its code and 16 MiB of its constants are in a
    process that loaded them (28 November 2026). What is used again is read again from its file. Only pages are given
    back that cannot be written, and that the loader did not change.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for begin, end in _unchanged(library):
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


def give_heap_back() -> None:
    """Have glibc give all free memory back now; with another C library, do nothing."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(ctypes.c_size_t(0))


def _unchanged(library: str) -> Iterator[tuple[int, int]]:
    """Where parts of a library lie of which each page is as it is in the file."""
    span, is_meant = "", False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *fields = line.split()
        if not key.endswith(":"):
            span, is_meant = key, library in line and fields[0] in ("r-xp", "r--p")
        elif key == "Anonymous:" and is_meant and fields[0] == "0":
            begin, end = (int(bound, 16) for bound in span.split("-"))
            yield begin, end
