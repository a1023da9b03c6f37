"""Kinds of steps by their work: planted sequences, a plain loop over SQL, and real reports."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest

from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.paraver.value_tables import MEMORY_OPERATIONS
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.steps.work_kinds import Content, _Comparison, divide_by_work, load_content, may_differ, name_work
from tests.conftest import SAMPLES, Unpacked

COPY = "Memcpy device to host"
Work = Counter[str]
"""How often a step has each kernel, and how many bytes it copies to the host."""


def make_content(tasks: Sequence[Sequence[Work]], **calls: list[int]) -> Content:
    """Return the work of each step of each task. A kernel takes 1,000 ns, a byte 1 ns."""
    codes: dict[tuple[int, str], int] = {}
    rows = [
        (step, codes.setdefault((task, name), len(codes)), amount, amount * (1 if name == COPY else 1_000))
        for task, steps in enumerate(tasks)
        for step, work in enumerate(steps)
        for name, amount in work.items()
    ]
    step, code, amount, ns = np.array(rows, np.int64).T
    is_copy = np.array([name == COPY for _, name in codes])
    task = np.array([task for task, _ in codes])
    found = {label.replace("_", " "): np.array(steps) for label, steps in calls.items()}
    return Content(step, code, amount, ns, task, is_copy, is_copy, found)


def divide(
    works: Sequence[Work], length: Sequence[int], warmup: int = 1, **calls: list[int]
) -> tuple[list[int], list[str]]:
    """Return the kind of each step of a task, and the names of the kinds."""
    content, steps = make_content([works], **calls), len(works)
    kind = divide_by_work(content, np.array(length), np.ones(steps, np.bool_), np.arange(steps) >= warmup)
    return kind.tolist(), name_work(content, kind, steps)


TRAIN = Work(forward=100, backward=200, optimizer=7)
EVAL = Work(forward=100, metric=3)


def test_validation_after_each_fourth_step_is_a_kind() -> None:
    planted = ([0] * 4 + [1]) * 4
    kind, names = divide([EVAL if n else TRAIN for n in planted], [30 if n else 90 for n in planted])
    assert (kind, names) == (planted, ["", "with 204 fewer kernels"])


def test_alternating_steps_are_two_kinds() -> None:
    planted = [0, 1] * 6
    works = [Work(discriminator=90, both=50), Work(generator=150, both=20)]
    kind, _ = divide([works[n] for n in planted], [[100, 180][n] for n in planted])
    assert {tuple(kind[::2]), tuple(kind[1::2])} == {(0,) * 6, (1,) * 6}


def test_prefill_between_decode_steps_is_a_kind() -> None:
    rng = Random(1)
    planted = [0, 0, *(int(rng.random() < 0.2) for _ in range(40))]
    works = [Work(gemv=64, decode=32), Work(gemm=64, prefill=32)]
    kind, names = divide([works[n] for n in planted], [[10, 75][n] for n in planted])
    assert (kind, names) == (planted, ["", "with other kernels"])


def test_small_irregular_work_makes_no_kind() -> None:
    printed = TRAIN + Work({"reduce": 2, COPY: 8})
    assert divide([printed if n % 4 == 0 else TRAIN for n in range(16)], [150, 100, 100, 100] * 4)[0] == [0] * 16


def test_other_kernels_that_take_as_long_make_no_kind() -> None:
    assert divide([TRAIN if n % 2 else EVAL for n in range(12)], [100, 101] * 6)[0] == [0] * 12


def test_a_single_other_step_has_the_closest_kind() -> None:
    works = [TRAIN] * 6 + [Work(forward=300, backward=600, optimizer=21)] + [EVAL] * 3 + [TRAIN] * 3
    kind, _ = divide(works, [90] * 6 + [400] + [30] * 3 + [90] * 3)
    assert kind == [0] * 7 + [1] * 3 + [0] * 3


def test_the_warm_up_makes_no_kind() -> None:
    works = [TRAIN + Work(autotune=900)] * 2 + [TRAIN] * 8
    assert divide(works, [900] * 2 + [90] * 8, warmup=2)[0] == [0] * 10


def test_kinds_of_irregular_lengths_are_one() -> None:
    works = [EVAL if n % 2 else TRAIN for n in range(12)]
    assert divide(works, [90, 200, 90, 40] * 3)[0] == [0] * 12


@pytest.mark.parametrize(
    ("calls", "name"),
    [
        ({}, "with copies to the host"),
        ({"with_a_checkpoint": [4, 9, 14]}, "with a checkpoint"),
        ({"with_a_checkpoint": [*range(15)]}, "with copies to the host"),
    ],
)
def test_copies_to_the_host_are_a_checkpoint_if_only_these_steps_write_files(
    calls: dict[str, list[int]], name: str
) -> None:
    planted = ([0] * 4 + [1]) * 3
    saved = TRAIN + Work({COPY: 200_000})
    kind, names = divide([saved if n else TRAIN for n in planted], [150 if n else 90 for n in planted], **calls)
    assert (kind, names) == (planted, ["", name])


def test_a_kind_with_other_kernels_loads_them_if_only_its_steps_do() -> None:
    planted = [0] * 9 + [1, 0, 1]
    works = [TRAIN, Work(forward=100, fused=207)]
    _, names = divide([works[n] for n in planted], [[90, 200][n] for n in planted], that_load_kernels=[9, 11])
    assert names == ["", "that load kernels"]


def test_one_rank_that_saves_makes_a_kind() -> None:
    planted = ([0] * 4 + [1]) * 3
    saving = [TRAIN + Work({COPY: 200_000}) if n else TRAIN for n in planted]
    content = make_content([saving, *[[TRAIN] * 15] * 7])
    every = np.ones(15, np.bool_)
    assert divide_by_work(content, np.array([150 if n else 90 for n in planted]), every, every).tolist() == planted


def test_a_helper_process_with_few_kernels_makes_no_kind() -> None:
    content = make_content([[TRAIN] * 12, [Work(helper=1 + n % 2 * 4) for n in range(12)]])
    every = np.ones(12, np.bool_)
    assert not divide_by_work(content, np.array([100, 200] * 6), every, every).any()


def test_steps_of_equal_lengths_need_no_look_at_their_work() -> None:
    assert not may_differ(np.array([100, 101, 99, 100, 200]))  # one long step is an exception
    assert may_differ(np.array([100, 130, 99, 131]))


def compare_by_loops(works: Sequence[Work], leader: Work) -> list[float]:
    """Return the similarity of steps of one task to a step, as the module defines it, by plain loops."""
    found = []
    for work in works:
        shared = {name: min(work[name], leader[name]) for name in {*work, *leader}}
        either = {name: max(work[name], leader[name]) for name in {*work, *leader}}
        number = (
            sum(each for name, each in shared.items() if name != COPY),
            sum(each for name, each in either.items() if name != COPY),
        )
        extra = either[COPY] - shared[COPY] if COPY in either else 0
        whole = 1_000 * number[1] + either.get(COPY, 0)
        found.append(min(number[0] / number[1], 1 - extra / whole))
    return found


def test_similarity_is_that_of_plain_loops() -> None:
    rng = Random(2)
    works = [
        Work({name: rng.randrange(1, 9) for name in "abcd" if rng.random() < 0.8} | {"e": 1, COPY: 500 * n})
        for n in range(20)
    ]
    measured = _Comparison(make_content([works]), 20)
    for n in range(20):
        assert measured.measure(n) == pytest.approx(compare_by_loops(works, works[n]))


# ---- real reports ----------------------------------------------------------------------------------------------------


def test_work_of_steps_is_that_of_a_loop_over_sql(tmp_path: Path) -> None:
    paths = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
    with open_job(paths, tmp_path, ReadOptions(align="utc"), Progress()) as job:
        steps = job.steps
        assert steps is not None
        content = load_content(steps.host, steps.step, job.reports, job.whole, job.store, are_ranges=True)
    kernels, copies = Counter[int](), Counter[tuple[int, bool]]()
    for path in paths:
        with closing(sqlite3.connect(path)) as database:
            ranges = "FROM NVTX_EVENTS WHERE text LIKE 'step _' ORDER BY start"
            begins, ends = zip(*database.execute(f"SELECT start, end {ranges}"), strict=True)
            for table, amount in (("KERNEL", "1"), ("MEMCPY", "g.bytes"), ("MEMSET", "g.bytes")):
                query = f"""SELECT r.start, {amount}, {"g.copyKind" if table == "MEMCPY" else "0"}
                    FROM CUPTI_ACTIVITY_KIND_{table} g JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
                    ON r.correlationId = g.correlationId AND r.globalTid / 0x1000000 = g.globalPid / 0x1000000"""
                for launched, amount_of_row, kind in database.execute(query):
                    if begins[0] <= launched <= ends[-1]:
                        step = bisect_left(ends, launched)
                        if table == "KERNEL":
                            kernels[step] += 1
                        else:
                            copies[step, kind == 2] += amount_of_row
    code = content.code
    found = np.bincount(content.step, np.where(content.is_copy[code], 0, content.amount))
    assert dict(enumerate(found.tolist())) == dict(kernels)
    for to_host in (True, False):
        chosen = content.is_copy[code] & (content.to_host[code] == to_host)
        sums = np.bincount(content.step, np.where(chosen, content.amount, 0), 6)
        assert {n: int(each) for n, each in enumerate(sums) if each} == {
            step: size for (step, is_to_host), size in copies.items() if is_to_host == to_host and size
        }
    assert MEMORY_OPERATIONS[4] == COPY


@pytest.mark.slow
def test_rollouts_between_updates_without_ranges(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    path = tmp_path / "ppo.sqlite"
    path.write_bytes(unpacked(shared_reports / "programs/ppo-fast.rank0.sqlite").read_bytes())
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM NVTX_EVENTS")
    with open_job([path], tmp_path, ReadOptions(), Progress()) as job:
        assert job.steps is not None
        assert job.steps.kinds == ("training", "other work")
        assert job.steps.kind.tolist() == ([0] * 8 + [1]) * 4 + [0] * 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kinds"),
    [("whatif/hf-base", {"": 14}), ("whatif/x-uneven", {"": 30}), ("exercises/tpgraph-1x4", {"": 64})],
)
def test_kinds_of_real_reports(
    name: str, kinds: dict[str, int], shared_reports: Path, unpacked: Unpacked, tmp_path: Path
) -> None:
    ranks = 4 if name.endswith("1x4") else 1
    paths = [unpacked(shared_reports / f"{name}.rank{rank}.sqlite") for rank in range(ranks)]
    with open_job(paths, tmp_path, ReadOptions(), Progress()) as job:
        assert job.steps is not None
        count = np.bincount(job.steps.kind).tolist()
        assert dict(zip(job.steps.kinds, count, strict=True)) == kinds
