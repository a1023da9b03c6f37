"""What calls do, in words, for the names of the OS runtime calls that reports of programs have."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from nsys2prv_ng.text.calls import describe_call, explain_call
from tests.comparison.test_programs import find_report

LONGEST = {
    "checkpoint": {"poll": "waiting for input", "writev": "writing", "fopen": "opening or closing files"},
    "patches": {"sem_clockwait": "waiting for another thread", "pthread_cond_wait": "waiting for another thread"},
    "hftrainer": {"ioctl": "calling a driver", "read": "reading", "munmap": "mapping memory"},
}
"""Calls with much time in each program, and what they do by their manual pages."""


@pytest.mark.parametrize("name", LONGEST)
def test_long_calls_have_words(name: str) -> None:
    with closing(sqlite3.connect(find_report(name, "a"))) as database:
        query = 'SELECT value, sum("end" - start) FROM OSRT_API JOIN StringIds ON id = nameId GROUP BY 1'
        times = dict(database.execute(query))
    assert {call: explain_call(call) for call in LONGEST[name]} == LONGEST[name]
    assert set(LONGEST[name]) <= set(times)
    explained = sum(ns for call, ns in times.items() if explain_call(call))
    assert explained > 0.95 * sum(times.values())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("futex", "waiting for another thread (`futex`)"),
        ("pthread_cond_*wait", "waiting for another thread (`pthread_cond_*wait`)"),
        ("pthread_mutex_*lock", "waiting for a lock (`pthread_mutex_*lock`)"),
        ("epoll_wait", "waiting for requests or messages (`epoll_wait`)"),
        ("waitpid", "waiting for a child process (`waitpid`)"),
        ("posix_spawn", "starting a process (`posix_spawn`)"),
        ("cuLibraryLoadData", "loading kernels (`cuLibraryLoadData`)"),
        ("cudaLaunchKernel", "`cudaLaunchKernel`"),
        ("MPI_Wait", "`MPI_Wait`"),
        ("polling`", "`polling'`"),  # a whole name only, and a name of a report
    ],
)
def test_calls_in_sentences(call: str, text: str) -> None:
    assert describe_call(call) == text
