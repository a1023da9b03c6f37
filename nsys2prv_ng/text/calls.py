"""Says in words what calls of the OS runtime and of CUDA are for, and groups those that are signs of a cause.

A group is a pattern of whole names. Names of the OS runtime may be those that Extrae joins, such as pthread_cond_*wait.
"""

from __future__ import annotations

import re
from functools import lru_cache

from nsys2prv_ng.text.names import quote_name

LOADS = re.compile(r"cu(da)?(Module|Library)Load\w*|cuLink\w+|nvrtcCompileProgram|nvJitLinkComplete")
"""Calls that load kernels, or compile them."""
WRITES = re.compile(r"p?writev?(64)?2?|fwrite|fsync|fdatasync|sendfile(64)?")
"""Calls that write files."""
STARTS_PROCESS = re.compile(r"v?fork|clone3?|posix_spawnp?|waitpid|waitid|wait[34]?")
"""Calls that start another process, or wait for its end."""
WAITS_FOR_DATA = re.compile(r"p?poll|p?select|sem_(clock|timed)wait")
"""Calls in which a thread waits for a queue or a pipe, as that of the workers of a data loader. Python takes its own
lock (GIL) by pthread_cond_*wait, and other runtimes wait by futex."""

_WORDS = {
    LOADS: "loading kernels",
    re.compile(r"waitpid|waitid|wait[34]?"): "waiting for a child process",
    STARTS_PROCESS: "starting a process",
    re.compile(r"pthread_create"): "starting a thread",
    re.compile(r"(recv|recvfrom|m?recvm?msg|accept4?|epoll_p?wait2?)"): "waiting for requests or messages",
    re.compile(r"p?poll|p?select"): "waiting for input",
    re.compile(r"futex|sem_\w*wait|pthread_cond_\S*wait|pthread_(timed|clock)?join\w*"): "waiting for another thread",
    re.compile(r"pthread_(mutex|rwlock|spin)_\S*lock"): "waiting for a lock",
    re.compile(r"(clock_)?(nano)?sleep|usleep|sched_yield"): "sleeping",
    WRITES: "writing",
    re.compile(r"p?readv?(64)?2?|fread|fgets|getline"): "reading",
    re.compile(r"f?open(at)?(64)?2?|f?close|fclose"): "opening or closing files",
    re.compile(r"m(un|re)?map(64)?|mprotect|madvise|s?brk"): "mapping memory",
    re.compile(r"ioctl"): "calling a driver",
}
"""What calls do, the first pattern that matches."""


@lru_cache(None)
def explain_call(name: str) -> str:
    """Return what a call does, in words; "" if its name says it, or nobody knows."""
    return next((words for pattern, words in _WORDS.items() if pattern.fullmatch(name)), "")


def describe_call(name: str) -> str:
    """Return a call as part of a sentence: what it does, and its name in brackets; or its name."""
    words = explain_call(name)
    return f"{words} ({quote_name(name)})" if words else quote_name(name)
