"""Sequences that a step launches again and again, and forward passes that run twice: by brute force and as planted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.replay.repeats import (
    KINDS,
    Launched,
    Repeats,
    find_copies,
    find_one_hot,
    find_recomputed,
    find_repeats,
    list_repeated,
    mark_calls,
)

PLAIN = [("a", "Elementwise"), ("b", "Reduction"), ("c", "Elementwise"), ("d", "Other")]
LEAST = {"others": 16, "optimizer": 8, "embedding": 8, "recurrent": 8}


def launch(
    kinds: list[int],
    names: list[tuple[str, str]] = PLAIN,
    groups: list[int] | None = None,
    lengths: list[int] | None = None,
) -> Launched:
    """Return kernels that one thread launches, each by a call of its own after a call that launches nothing."""
    size = len(kinds)
    at = np.arange(size)
    group = np.zeros(size, np.int64) if groups is None else np.array(groups, np.int64)
    zeros = np.zeros(size, np.int64)
    length = zeros + 1 if lengths is None else np.array(lengths, np.int64)
    return Launched(at, length, 2 * at + 1, zeros, zeros, group, np.array(kinds, np.int64), names)


def list_runs(repeats: Repeats) -> list[tuple[str, int, int, int]]:
    """Return (kind, kernels, times, index of the first kernel of the second repetition)."""
    columns = (repeats.kind, repeats.kernels, repeats.times, repeats.low)
    return sorted(
        (KINDS[kind], kernels, times, (low - 1) // 2)
        for kind, kernels, times, low in zip(*(column.tolist() for column in columns), strict=True)
    )


@given(
    before=st.lists(st.integers(0, 3), max_size=20),
    unit=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    times=st.integers(1, 40),
    after=st.lists(st.integers(0, 3), max_size=20),
    cut=st.integers(0, 240),
)
def test_runs_are_those_of_a_search_by_brute_force(
    before: list[int], unit: list[int], times: int, after: list[int], cut: int
) -> None:
    """Each is a repetition within one step, they do not overlap, and the longest repetition of all is among them."""
    kinds = before + unit * times + after
    groups = [int(i >= cut) for i in range(len(kinds))]
    found = list_runs(find_repeats(launch(kinds, groups=groups)))
    covered: set[int] = set()
    for kind, k, r, second in found:
        first = second - k
        inside = range(first, first + k * r)
        assert kind == "others" and r >= 16 and len({groups[i] for i in inside}) == 1
        assert all(kinds[i] == kinds[first + (i - first) % k] for i in inside)
        assert not covered & set(inside)
        covered |= set(inside)
    most = 0
    for k in range(1, len(kinds) // 16 + 1):
        for first in range(len(kinds) - 16 * k + 1):
            r = 1
            while (
                first + (r + 1) * k <= len(kinds)
                and kinds[first + r * k : first + (r + 1) * k] == kinds[first : first + k]
                and len(set(groups[first : first + (r + 1) * k])) == 1
            ):
                r += 1
            most = max(most, k * r if r >= 16 else 0)
    assert max((k * r for _, k, r, _ in found), default=0) == most


@pytest.mark.parametrize(
    ("name", "kernel_class", "kind"),
    [
        ("vectorized_elementwise_kernel", "Optimizer", "optimizer"),
        ("EmbeddingBag_updateOutputKernel_sum_mean", "Embedding or index", "embedding"),
        ("compute_grad_weight_bags", "Embedding or index", "embedding"),
        ("lstm_cell_forward", "Elementwise", "recurrent"),
        ("gru_cell_backward", "Elementwise", "recurrent"),
        ("sm90_xmma_gemm", "GEMM TF32", "others"),
        ("vectorized_gather_kernel", "Embedding or index", "others"),
    ],
)
def test_kinds_follow_from_one_kernel(name: str, kernel_class: str, kind: str) -> None:
    names = [*PLAIN, (name, kernel_class)]
    least = LEAST[kind]
    assert list_runs(find_repeats(launch([0, 4, 1] * least + [3], names))) == [(kind, 3, least, 3)]
    assert list_runs(find_repeats(launch([0, 4, 1] * (least - 1) + [3], names))) == []


@pytest.mark.parametrize(
    "kernel", ["vectorized_elementwise_kernel", "EmbeddingBag_updateOutputKernel", "lstm_cell_forward"]
)
@pytest.mark.parametrize("kernel_class", ["Convolution", "Softmax or loss", "GEMM FP32"])
def test_passes_of_a_model_are_no_repetitions_of_a_part(kernel: str, kernel_class: str) -> None:
    """Updates on mini-batches contain an optimizer, lookups and cells; only cells have products of their own."""
    names = [*PLAIN, (kernel, "Optimizer" if kernel.startswith("vec") else "Elementwise"), ("model", kernel_class)]
    is_cell = kernel.startswith("lstm") and kernel_class.startswith("GEMM")
    kind = "recurrent" if is_cell else "others"
    few, many = (list_runs(find_repeats(launch([5, 4, 1] * times + [3], names))) for times in (8, 16))
    assert few == ([(kind, 3, 8, 3)] if is_cell else []) and many == [(kind, 3, 16, 3)]


def test_layers_that_communicate_are_no_repetitions() -> None:
    """Ranks enter NCCL's kernels together: such a sequence is a layer of a model, and needs the one before."""
    names = [*PLAIN, ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "NCCL")]
    assert list_runs(find_repeats(launch([0, 1, 2] * 20, names))) == [("others", 3, 20, 3)]
    assert not list_runs(find_repeats(launch([0, 1, 4] * 20, names)))


def test_what_repeats_as_often_as_the_optimizer_is_for_each_parameter() -> None:
    names = [*PLAIN, ("vectorized_elementwise_kernel", "Optimizer")]
    kinds = [1] * 20 + [3] + [0, 4] * 20 + [3] + [2] * 19
    assert list_runs(find_repeats(launch(kinds, names))) == [
        ("optimizer", 1, 20, 1),
        ("optimizer", 2, 20, 23),
        ("others", 1, 19, 63),
    ]
    listed = list_repeated(find_repeats(launch(kinds, names)))
    assert [(each.kind, each.kernels, each.times) for each in listed] == [
        ("optimizer", 2, 20),
        ("optimizer", 1, 20),
        ("others", 1, 19),
    ]


def test_kernels_of_one_call_and_those_outside_steps_do_not_count() -> None:
    names = [*PLAIN, ("multi_tensor_apply_kernel", "Optimizer")]
    assert list_runs(find_repeats(launch([4] * 30, names))) == []
    names = [*PLAIN, ("elemWiseRNNcell", "Elementwise")]
    assert list_runs(find_repeats(launch([0, 4] * 30, names))) == []
    assert list_runs(find_repeats(launch([0] * 30, groups=[-1] * 30))) == []
    assert list_runs(find_repeats(launch([]))) == []


@given(
    forward=st.lists(st.integers(0, 5), max_size=60),
    backward=st.lists(st.integers(0, 5), max_size=60),
    at=st.integers(0, 60),
    start=st.integers(0, 40),
    length=st.integers(0, 30),
)
def test_recomputed_kernels_are_those_of_a_search_by_brute_force(
    forward: list[int], backward: list[int], at: int, start: int, length: int
) -> None:
    """Twelve in a row, on a thread with kernels of a backward pass, as on one without."""
    names = [(name, "Elementwise") for name in ("a", "b", "c", "d", "e", "gelu_backward")]
    forward = [kind % 5 for kind in forward]
    second = backward[:at] + forward[start : start + length] + backward[at:]
    kinds = np.array(forward + second, np.int64)
    thread = np.repeat([0, 1], [len(forward), len(second)])
    every = np.arange(kinds.size)
    found = find_recomputed(
        Launched(every, np.ones_like(every), every, thread, np.zeros_like(thread), thread, kinds, names)
    )
    expected = set()
    if 5 in second:
        known = {tuple(forward[i : i + 12]) for i in range(len(forward) - 11)}
        for i in range(len(second) - 11):
            if tuple(second[i : i + 12]) in known:
                expected |= set(range(len(forward) + i, len(forward) + i + 12))
    assert set(found.operation.tolist()) == expected
    inside = np.flatnonzero(mark_calls(kinds.size, found.low, found.high))
    assert set(inside.tolist()) == expected


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=8))
def test_calls_between_others_are_marked(pairs: list[tuple[int, int]]) -> None:
    low = np.array([first for first, _ in pairs], np.int64)
    high = low + np.array([more for _, more in pairs], np.int64)
    expected = {call for first, more in pairs for call in range(first, first + more + 1)}
    assert set(np.flatnonzero(mark_calls(41, low, high)).tolist()) == expected


def test_recomputed_kernels_of_two_threads_are_apart() -> None:
    """The calls of the second thread begin with a copy, which is not recomputed."""
    names = [*PLAIN, ("norm_backward", "Normalisation")]
    block = [0, 1, 2, 3] * 3
    kinds = np.array([*block, 4, *block, *block, 4], np.int64)
    thread = np.repeat([0, 1, 2], [12, 13, 13])
    call = np.arange(kinds.size) + (thread == 2)
    found = find_recomputed(
        Launched(call, np.ones_like(call), call, thread, np.zeros_like(thread), thread, kinds, names)
    )
    assert found.low.tolist() == [13, 26] and found.high.tolist() == [24, 37]


# ---- copies and one-hot vectors --------------------------------------------------------------------------------------

COPY, KERNEL = ("Memcpy host to device", ""), ("a", "Elementwise")


@given(kinds=st.lists(st.sampled_from([0] * 12 + [1, 2]), max_size=120), cut=st.integers(0, 120))
def test_short_copies_in_a_row_are_those_of_a_loop(kinds: list[int], cut: int) -> None:
    """At least 16 that follow each other within a step; the first stays. 2: a copy that takes longer than its call."""
    groups = [int(i >= cut) for i in range(len(kinds))]
    runs, size = [], 0
    for i, kind in enumerate(kinds):
        size = size + 1 if kind == 0 and (i == 0 or groups[i] == groups[i - 1]) else int(kind == 0)
        ends = i + 1 == len(kinds) or kinds[i + 1] or groups[i + 1] != groups[i]
        if size >= 16 and ends:
            runs.append(("copies", 1, size, i - size + 2))
    lengths = [20_000 if kind == 2 else 2_000 for kind in kinds]
    found = find_copies(launch([kind % 2 for kind in kinds], [COPY, KERNEL], groups, lengths))
    assert list_runs(found) == sorted(runs)
    assert not list_repeated(found)


def test_one_hot_vectors_are_a_fill_a_scatter_a_cast_and_a_product() -> None:
    names = [
        ("vectorized_elementwise_kernel", "Copy, cast or fill"),
        ("_scatter_gather_elementwise_kernel", "Embedding or index"),
        ("sgemm", "GEMM FP32"),
        ("add", "Elementwise"),
    ]
    whole, halves, without = [0, 1, 0, 2], [0, 0, 1, 1, 0, 0, 2], [0, 1, 3, 2]
    kinds = [0, 0, 0, *whole, 3, *halves, 3, *without]  # other fills before the first
    both = [("one-hot", 4, 1, 3), ("one-hot", 7, 1, 8)]
    assert list_runs(find_one_hot(launch(kinds, names))) == both
    later_step = [0] * 5 + [1] * (len(kinds) - 5)
    assert list_runs(find_one_hot(launch(kinds, names, later_step))) == both[1:]
    ends_before = [0] * 3 + [1] * (len(kinds) - 3)
    assert list_runs(find_one_hot(launch(kinds, names, ends_before))) == both


def test_a_product_that_takes_longer_is_no_lookup() -> None:
    """As in the gradient of a gather: zeros, what is added to them, a cast, and the product of the layer before."""
    names = [
        ("fill", "Copy, cast or fill"),
        ("_scatter_gather_elementwise_kernel", "Embedding or index"),
        ("g", "GEMM BF16"),
    ]
    assert not find_one_hot(launch([0, 1, 0, 2], names, lengths=[2, 2, 2, 7])).kind.size
    assert find_one_hot(launch([0, 1, 0, 2], names, lengths=[2, 2, 2, 6])).kind.size == 1


def test_many_fills_in_a_row_take_no_time() -> None:
    """A search from each of them would take minutes."""
    assert not find_one_hot(launch([0] * 200_000, [("fill", "Copy, cast or fill")])).kind.size
