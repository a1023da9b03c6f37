"""The steps of a program, compared with plain loops over the NVTX ranges of its reports, and case by case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.objects.places import Thread
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.runtime.progress import Progress
from tests.analysis.path.path_reports import Capture
from tests.analysis.path.test_real_paths import list_path_sets
from tests.conftest import Unpacked
from tests.report_truth import PUSH_POP, Report, split_name
from tests.sources.small_reports import UTC
from tests.steps.step_truth import StepTruth, list_ranges
from tests.tiers import cases

Range = tuple[int, int, int, int]
"""Number, begin and end (UTC), thread."""


def find_names(reports: Sequence[Report]) -> list[str]:
    """Return the names of all ranges that may be steps."""
    by_name: dict[str, dict[object, list[Range]]] = defaultdict(lambda: defaultdict(list))
    tasks = set()
    for index, report in enumerate(reports):
        own = report.nvtx[(report.nvtx["style"] == PUSH_POP) & (report.nvtx["domain"] == "")]
        for begin, end, tid, text in zip(own["begin"], own["end"], own["tid"], own["text"], strict=True):
            name, number = split_name(text)
            if number is not None:
                tasks.add((index, tid >> 24))
                by_name[name][index, tid >> 24].append((number, begin + report.utc, end + report.utc, tid))
    return [name for name, own in by_name.items() if may_be_steps(own, len(tasks))]


def may_be_steps(by_task: dict[object, list[Range]], tasks: int) -> bool:
    """Tell whether every task has the same numbers, at least three, without gaps, in order and on one thread."""
    if len(by_task) < tasks:
        return False
    numbers = [sorted(number for number, *_ in own) for own in by_task.values()]
    first = numbers[0]
    if len(first) < 3 or any(other != first for other in numbers):
        return False
    if first != list(range(first[0], first[0] + len(first))):
        return False
    for own in by_task.values():
        in_time = sorted(own, key=lambda row: row[1])
        if [number for number, *_ in in_time] != first or len({tid for *_, tid in own}) > 1:
            return False
        if any(later[1] < earlier[2] for earlier, later in pairwise(in_time)):
            return False
    return True


NAMES = {
    "gpu/autograd-1": "iter",
    "gpu/ddp-2x2": "step",
    "samples/ddp-2x2": "step",
    "gpu/mpi-4": "iteration",
    "samples/mpi-4": "iteration",
    "gpu/mpi-one-report": "iteration",
    "gpu/oneproc-4gpu": "step",
    "gpu/sampled-1": "iter",
    "gpu/um-1": "um step",
    "bench/ddplong-2x2": "step",
    "bench/torchrun-one-report": "step",
    "exercises/tpgraph-1x4": "token",
    **{f"exercises/ex1{name}": "step" for name in ("a-fast", "a-slow", "b-fp32", "c-accum")},
    **{f"exercises/ex2{name}": "step" for name in ("a-zero2", "a-zero3", "b-manual", "b-overlap")},
    **{f"exercises/ex3a-{name}": "iteration" for name in ("pp1", "pp2", "pp2-plain")},
}
"""The ranges of the programs that are their steps, as their sources say; the other sets have none."""


@pytest.mark.parametrize("reports", list_path_sets())
def test_real_reports(
    reports: Sequence[Path], unpacked: Unpacked, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    paths = [unpacked(path) for path in reports]
    own = [Report(path) for path in paths]
    names = find_names(own)
    expected = NAMES.get(request.node.callspec.id)
    with open_job(paths, tmp_path, ReadOptions(align="utc"), Progress()) as job:
        steps = job.steps
        if expected is None:
            assert not names and (steps is None or not steps.has_ranges)
            return
        assert steps is not None and steps.has_ranges and steps.name == expected in names
        truth = StepTruth(own, list_ranges(own, expected))
        base = job.alignment.utc_base
        assert (steps.number.tolist(), steps.on_gpu) == (truth.numbers, truth.on_gpu)
        assert (steps.start + base).tolist() == truth.start and (steps.stop + base).tolist() == truth.stop
        assert (steps.length.tolist(), steps.host_length.tolist()) == (truth.lengths, truth.host_lengths)
        assert steps.warmup == truth.warmup
        last = int(steps.host_end.max())
        assert steps.row[steps.host_end.argmax()] in find_threads(job, own, expected, last + base)
        if steps.on_gpu:  # they tile the time
            assert steps.length.sum() == steps.stop[-1] - steps.start[0] and steps.length.min() > 0


def find_threads(job: Job, reports: Sequence[Report], name: str, end: int) -> set[int]:
    """Return the rows of the threads with a range of a name that ends at a time (UTC)."""
    rows = set()
    for report in reports:
        index = next(index for index, own in enumerate(job.reports) if own.path.name == report.path.name)
        own = report.nvtx[(report.nvtx["end"] + report.utc == end) & (report.nvtx["style"] == PUSH_POP)]
        tids = {tid for tid, text in zip(own["tid"], own["text"], strict=True) if split_name(text)[0] == name}
        places = zip(job.reports[index].places.all, job.whole.rows[index].tolist(), strict=True)
        rows |= {row for place, row in places if isinstance(place, Thread) and place.global_tid in tids}
    return rows


# ---- cases -----------------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    name: str
    number: list[int]
    begin: list[int]
    end: list[int]
    thread: str


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., Found | None]:
    """`find(capture, ...)`: the steps of a job, times of the reports."""

    def find_in(*captures: Capture, step: str = "") -> Found | None:
        for capture in captures:
            capture.kernel(capture.call("cudaLaunchKernel", 1, 2), 3, 4)
        paths = [capture.write(tmp_path / f"rank{capture.rank}.sqlite") for capture in captures]
        with open_job(paths, tmp_path, ReadOptions(selection=Selection(step=step)), Progress()) as job:
            steps = job.steps
            if steps is None:
                return None
            shift = job.alignment.utc_base - UTC
            times = (
                [int(column[steps.step == n].max()) + shift for n in range(steps.number.size)]
                for column in (steps.host_begin, steps.host_end)
            )
            task = job.whole.model.tasks[job.whole.task_of_row[steps.row[steps.host_end.argmax()]]].name
            return Found(steps.name, steps.number.tolist(), *times, task)

    return find_in


def make_rank(rank: int, texts: Sequence[str], begin: int = 1_000, length: int = 1_000) -> Capture:
    """Return a capture with ranges, one after the other."""
    capture = Capture(rank, 2)
    for index, text in enumerate(texts):
        capture.range(text, begin + 2_000 * index, begin + 2_000 * index + length)
    return capture


STEPS = [f"step {number}" for number in range(4)]
Find = Callable[..., "Found | None"]


@pytest.mark.slow
def test_the_last_rank_to_begin_and_to_end(find: Find) -> None:
    found = find(make_rank(0, STEPS, 1_000, 1_500), make_rank(1, STEPS, 1_100, 1_200))
    assert found == Found("step", [0, 1, 2, 3], [1_100, 3_100, 5_100, 7_100], [2_500, 4_500, 6_500, 8_500], "rank 0")


@pytest.mark.slow
def test_ranges_that_repeat_in_each_step(find: Find) -> None:
    """Microbatches within steps are none, though they cover as much time."""
    capture = make_rank(0, STEPS)
    for begin in range(1_000, 9_000, 2_000):
        for number in range(2):
            capture.range(f"microbatch {number}", begin + 500 * number, begin + 500 * number + 500)
    found = find(capture)
    assert found is not None and found.name == "step"


@pytest.mark.slow
def test_steps_that_repeat_in_each_epoch(find: Find) -> None:
    capture = Capture()
    for epoch in range(3):
        capture.range(f"epoch {epoch}", 10_000 * epoch, 10_000 * epoch + 9_000)
        for step in range(4):
            capture.range(f"step {step}", 10_000 * epoch + 2_000 * step, 10_000 * epoch + 2_000 * step + 1_900)
    found = find(capture)
    assert found is not None and found.name == "epoch"


@pytest.mark.slow
def test_the_ranges_that_cover_most_time(find: Find) -> None:
    capture = make_rank(0, STEPS)
    for number in range(4):
        capture.range(f"forward {number}", 1_000 + 2_000 * number, 1_400 + 2_000 * number)
    found = find(capture)
    assert found is not None and found.name == "step"


@pytest.mark.parametrize(
    "others",
    cases(
        [
            STEPS[1:],  # a rank that numbers the same steps otherwise
            STEPS[::-1],
            [*STEPS, "step 3"],
            ["warm-up 0"],
            STEPS[2:],  # too few are left
            [f"step {number}" for number in range(1, 5)],
            [*STEPS[:3], "step 5"],
        ],
        push=4,
        quick=1,
    ),
)
def test_ranks_whose_ranges_differ(find: Find, others: Sequence[str]) -> None:
    assert find(make_rank(0, STEPS), make_rank(1, others)) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "early", "shared"), [(1, 0, [1, 2, 3, 4, 5]), (0, 1, [0, 1, 2, 3, 4]), (2, 1, [2, 3, 4]), (2, 2, None)]
)
def test_captures_begin_and_end_within_different_steps(
    find: Find, late: int, early: int, shared: list[int] | None
) -> None:
    """The steps that all ranks have; one rank begins late, another one ends early. A rank is up to 900 ns behind."""
    texts = [f"step {number}" for number in range(6)]
    captures = [
        make_rank(0, texts),
        make_rank(1, texts[late:], 1_900 + 2_000 * late),
        make_rank(2, texts[: 6 - early], 1_500),
    ]
    found = find(*captures)
    assert (None if found is None else found.number) == shared


@pytest.mark.slow
def test_a_rank_without_numbered_ranges(find: Find) -> None:
    """It may have other ranges, or none."""
    found = find(make_rank(0, STEPS), make_rank(1, ["train"]))
    assert found is not None and found.name == "step"


@pytest.mark.slow
def test_too_few_ranges(find: Find) -> None:
    assert find(make_rank(0, STEPS[:2])) is None


@pytest.mark.slow
def test_ranges_of_several_threads(find: Find) -> None:
    capture = make_rank(0, STEPS[:2])
    for number in (2, 3):
        capture.range(f"step {number}", 10_000 * number, 10_000 * number + 100, thread=1)
    assert find(capture) is None


@pytest.mark.slow
def test_ranges_that_overlap(find: Find) -> None:
    assert find(make_rank(0, STEPS, length=2_500)) is None


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [range(0, 40, 2), range(3)])
def test_numbers_of_operations(find: Find, numbers: Sequence[int]) -> None:
    """PyTorch numbers all operations: those of one name have gaps, or a vanishing part of the time."""
    capture = Capture()
    for number in numbers:
        capture.range(f"aten::rand, op_id = {number}", 1_000 * number, 1_000 * number + 10)
    capture.call("cudaDeviceSynchronize", 100_000, 200_000)
    assert find(capture) is None


def make_launching(rank: int, texts: Sequence[str], kind: int = 59) -> Capture:
    """Return a capture with ranges of 1,000 ns, one after the other, each of which launches a kernel of 400 ns."""
    capture = Capture(rank, 2)
    for index, text in enumerate(texts):
        begin = 2_000 + 2_000 * index
        capture.range(text, begin, begin + 1_000, kind=kind)
        capture.kernel(capture.call("cudaLaunchKernel", begin + 100, begin + 110), begin + 200, begin + 600)
    return capture


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("step", [[f"step {n}" for n in (0, 1, 2, 3, 0, 1, 2, 3)]]),
        ("load + solve", [["load", "solve"] * 8]),
        ("rank*/step", [[f"rank{rank}/step {n}" for n in range(8)] for rank in range(2)]),
        ("step", [[f"evaluation {n // 4}" if n % 4 == 3 else f"step {n - n // 4}" for n in range(16)]]),
    ],
    ids=["numbers start anew", "two names", "ranks in names", "two counters"],
)
def test_ranges_in_their_order(find: Find, name: str, texts: Sequence[Sequence[str]]) -> None:
    """Steps whose numbers do not make them steps."""
    found = find(*(make_launching(rank, own) for rank, own in enumerate(texts)))
    assert found is not None
    ranges = 2 if name == "load + solve" else 1
    assert (found.name, found.begin) == (name, list(range(2_000, 2_000 + 2_000 * len(texts[0]), 2_000 * ranges)))


@pytest.mark.slow
def test_start_end_ranges_that_launch_most_work(find: Find) -> None:
    found = find(make_launching(0, [f"step {n}" for n in range(8)], kind=60))
    assert found is not None and (found.name, found.number) == ("step", list(range(8)))


@pytest.mark.slow
def test_ranges_of_start_and_end(find: Find) -> None:
    """They need not nest: their numbers do not make steps, if GPU work does not follow their order."""
    capture = Capture()
    for number in range(4):
        capture.range(f"step {number}", 1_000 * number, 1_000 * number + 500, kind=60)
    assert find(capture) is None


@pytest.mark.parametrize(
    ("open_ranks", "expected"), [((0, 1), [0, 1, 2, 3]), ((0,), [0, 1, 2, 3]), ((), [0, 1, 2, 3, 4])]
)
def test_the_capture_ends_within_a_step(find: Find, open_ranks: Sequence[int], expected: Sequence[int]) -> None:
    """A range without an end is no step, nor is one that only the other rank ended."""
    captures = [make_rank(rank, STEPS) for rank in (0, 1)]
    for capture in captures:
        capture.range("step 4", 9_000, None if capture.rank in open_ranks else 9_800)
        capture.call("cudaDeviceSynchronize", 9_900, 10_000)
    found = find(*captures)
    assert found is not None and found.number == expected


# ---- ranges that the user names --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ranges_without_a_number_count_from_0(find: Find) -> None:
    captures = [make_rank(rank, ["train"] * 3, 1_000 + rank) for rank in (0, 1)]
    assert find(*captures, step="train") == Found(
        "train", [0, 1, 2], [1_001, 3_001, 5_001], [2_001, 4_001, 6_001], "rank 1"
    )


@pytest.mark.slow
def test_named_ranges_with_a_number(find: Find) -> None:
    """They need not cover most time."""
    capture = make_rank(0, STEPS)
    for number in (7, 8, 9):
        capture.range(f"forward: {number}", 1_000 + 2_000 * (number - 7), 1_100 + 2_000 * (number - 7))
    found = find(capture, step="forward")
    assert found is not None and (found.name, found.number) == ("forward", [7, 8, 9])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([["step 1"], ["other"]], "no NVTX range in the selected reports has this name; ranges with numbers are step"),
        ([["train"] * 2], "a rank has fewer than 3 of them"),
        (
            [["other", "other", *["train"] * 3], ["train"] * 4],
            "not every rank has as many of them, with the same numbers",
        ),
        ([["train 2", "train 1", "train 3"]], "not in the order of their numbers"),
    ],
)
def test_named_ranges_that_are_no_steps(find: Find, texts: Sequence[Sequence[str]], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        find(*[make_rank(rank, own) for rank, own in enumerate(texts)], step="train")
    assert (error.value.parameter, error.value.value) == ("step", "train")


# ---- steps that the user chooses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "limits"),
    [
        (Selection(steps=(1, 2)), (2_999, 6_601)),
        (Selection(steps=(2, None)), (4_999, 8_601)),
        (Selection(steps=(None, 0)), (999, 2_601)),
        (Selection(skips_warmup=True), (4_999, 8_601)),  # step 1 is slower than the others
        (Selection(skips_warmup=True, steps=(None, 2)), (4_999, 6_601)),
        (Selection(steps=(1, 1), window=(2_100, 2_200)), (3_100, 3_200)),  # the first range begins at 1000
    ],
)
def test_chosen_steps(selection: Selection, limits: tuple[int, int], tmp_path: Path) -> None:
    """From the first begin on any rank to the last end, and a ns more on both sides."""
    captures = [make_rank(0, STEPS, 1_000, 1_500), Capture(1, 2)]
    for number, begin in enumerate([1_100, 3_100, 5_100, 7_100]):
        captures[1].range(f"step {number}", begin, begin + (1_700 if number == 1 else 1_500))
    paths = [capture.write(tmp_path / f"rank{capture.rank}.sqlite") for capture in captures]
    with open_job(paths, tmp_path, ReadOptions(selection=selection), Progress()) as job:
        shift = job.alignment.utc_base - UTC
        [(low, high)] = job.scope.windows
    assert (low + shift, high + shift) == limits


@pytest.mark.parametrize(
    ("texts", "selection", "parameter", "message"),
    [
        (STEPS, Selection(steps=(7, None)), "steps", "there is no such step; the steps of this job are 0 to 3"),
        (STEPS, Selection(steps=(0, 0), skips_warmup=True), "steps", "and 1 is the first after the warm-up"),
        (STEPS, Selection(steps=(3, 3), window=(0, 100)), "time", "none of the chosen steps is in this time"),
        (["a", "b"], Selection(steps=(1, 2)), "steps", "shows the steps of this program"),
        (["a", "b"], Selection(skips_warmup=True), "skip_warmup", "shows the steps of this program"),
    ],
)
def test_steps_that_are_not_there(
    texts: Sequence[str], selection: Selection, parameter: str, message: str, tmp_path: Path
) -> None:
    path = make_rank(0, texts).write(tmp_path / "rank0.sqlite")
    with (
        pytest.raises(UsageError, match=message) as error,
        open_job([path], tmp_path, ReadOptions(selection=selection), Progress()),
    ):
        pass
    assert error.value.parameter == parameter
