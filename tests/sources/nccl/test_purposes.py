"""What the calls of a process on a communicator look like: lists of calls made by hand, as programs make them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.nccl.purposes import (
    ACTIVATIONS,
    ALL_GATHER,
    ALL_REDUCE,
    EXPERTS,
    GRADIENTS,
    HIDDEN,
    LAYERS,
    NO_LAYERS,
    NO_PURPOSE,
    OTHER_KIND,
    RECEIVED,
    REDUCE_SCATTER,
    SENT,
    SHARDS,
    SPREAD,
    STAGES,
    WHOLE,
    Uses,
    find_purpose,
)

MB = 1 << 20
BUCKETS = [25 * MB + 4096, 25 * MB, 25 * MB, 31 * MB, 7 * MB]
ATTENTION, MLP, STEP = [11, 12, 13], [21, 22], list(range(40))


class Program:
    """The calls of one process, with the kernels (numbers for names) that it launched before each."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, bool, int, int, int, int]] = []
        self.kernels, self.launched, self.group = 0, 0, 0

    def call(
        self, kind: int, size: int, kernels: Sequence[int] = (), *, average: bool = False, peer: int = NULL
    ) -> None:
        """Launch kernels, then make a call in a group of its own."""
        self.group += 1
        self._add(kind, size, kernels, average=average, peer=peer)

    def exchange(self, *messages: tuple[int, int, int]) -> None:
        """Make sends and receives (kind, peer, size) in one group."""
        self.group += 1
        for kind, peer, size in messages:
            self._add(kind, size, (), average=False, peer=peer)

    def _add(self, kind: int, size: int, kernels: Sequence[int], *, average: bool, peer: int) -> None:
        self.kernels += len(kernels)
        self.launched += sum(hash((kernel, "name")) >> 8 for kernel in kernels)
        self.calls.append((kind, size, average, self.group, peer, self.kernels, self.launched % 2**62))

    def judge(self, graphs: int = NO_LAYERS) -> int:
        kind, size, average, group, peer, kernels, launched = (
            np.array([call[i] for call in self.calls], np.bool_ if i == 2 else np.int64) for i in range(7)
        )
        thread = np.full(kind.size, 5)
        return find_purpose(Uses(kind, size, average, thread, group, peer, kernels, launched), graphs)


def repeat(kind: int, sizes: Iterable[int], times: int, kernels: Sequence[int] = STEP, **more: bool) -> Program:
    program = Program()
    listed = list(sizes)
    for _ in range(times):
        for size in listed:
            program.call(kind, size, kernels, **more)
    return program


def layers(layers: int, steps: int, size: int = 8 * MB) -> Program:
    program = Program()
    for _ in range(steps):
        for _ in range(layers):
            program.call(ALL_REDUCE, size, ATTENTION)
            program.call(ALL_REDUCE, size, MLP)
    return program


# ---- all-reduces -----------------------------------------------------------------------------------------------------


def test_buckets_of_gradients_repeat() -> None:
    assert repeat(ALL_REDUCE, BUCKETS, 4).judge() == GRADIENTS
    assert repeat(ALL_REDUCE, BUCKETS, 1).judge() == NO_PURPOSE  # one step shows no repetition
    sizes = random.Random(1).choices(range(MB, 40 * MB), k=60)
    assert repeat(ALL_REDUCE, sizes, 1).judge() == NO_PURPOSE


def test_scalars_and_first_parameters_do_not_count() -> None:
    program = repeat(ALL_REDUCE, [*BUCKETS, 4, 8], 4)
    for size in (900 * MB, 1616):
        program.call(SPREAD, size)
    assert program.judge() == GRADIENTS
    assert repeat(ALL_REDUCE, [4], 100).judge() == NO_PURPOSE  # barriers
    assert Program().judge() == NO_PURPOSE


def test_averages_are_of_gradients_if_they_are_large() -> None:
    assert repeat(ALL_REDUCE, [50 * MB], 10, average=True).judge() == GRADIENTS
    assert repeat(ALL_REDUCE, [2048], 100, average=True).judge() == NO_PURPOSE  # metrics


def test_gradients_reduced_one_by_one_follow_each_other() -> None:
    sizes = [16 * MB, 4096, 12 * MB, 4096, 4 * MB] * 6 + [33 * MB] * 2
    program = Program()
    for _ in range(4):
        program.call(ALL_REDUCE, sizes[0], STEP)
        for size in sizes[1:]:
            program.call(ALL_REDUCE, size)
    assert program.judge() == GRADIENTS


def test_activations_are_between_alternating_kernels() -> None:
    assert layers(4, 3).judge() == ACTIVATIONS
    assert layers(4, 1).judge() == NO_PURPOSE  # too few
    # Activations of two encoders repeat as gradients do, but no size comes once.
    program = Program()
    for _ in range(4):
        for size in (8 * MB, 3 * MB):
            for _ in range(6):
                program.call(ALL_REDUCE, size, ATTENTION)
                program.call(ALL_REDUCE, size, MLP)
    assert program.judge() == NO_PURPOSE


@pytest.mark.parametrize("kernels", [STEP, [1], []])
def test_equal_calls_may_be_anything(kernels: list[int]) -> None:
    """One flat buffer of gradients, or a benchmark with and without kernels."""
    assert repeat(ALL_REDUCE, [16 * MB], 64, kernels).judge() == NO_PURPOSE


def test_graphs_show_layers() -> None:
    program = repeat(ALL_REDUCE, [131072], 32, [1])
    assert program.judge(LAYERS) == ACTIVATIONS
    assert program.judge(WHOLE) == HIDDEN
    assert repeat(ALL_REDUCE, BUCKETS, 4).judge(WHOLE) == GRADIENTS
    assert repeat(ALL_REDUCE, BUCKETS, 4).judge(LAYERS) == GRADIENTS


# ---- shards ----------------------------------------------------------------------------------------------------------


def shard(scattered: list[int], gathered: list[int], *, average: bool = False) -> Program:
    program = Program()
    for _ in range(8):
        for size in gathered:
            program.call(ALL_GATHER, size, STEP)
        for size in scattered:
            program.call(REDUCE_SCATTER, size, STEP, average=average)
    return program


def test_shards_are_gathered_and_scattered() -> None:
    units = [12 * MB] * 6 + [16 * MB]
    assert shard(units, units, average=True).judge() == SHARDS
    assert shard(units, units).judge() == SHARDS
    assert shard([2 * size for size in units], units).judge() == SHARDS  # gradients in FP32
    assert shard([MB] * 4, [MB] * 4).judge() == NO_PURPOSE  # sequence parallelism
    assert shard([5 * MB, 6 * MB], units).judge() == NO_PURPOSE
    assert shard([], units).judge() == NO_PURPOSE
    assert shard(units, []).judge() == NO_PURPOSE


def test_calls_of_several_uses_have_no_purpose() -> None:
    program = repeat(ALL_REDUCE, BUCKETS, 4)
    for _ in range(20):
        program.call(ALL_GATHER, 25 * MB)
    assert program.judge() == NO_PURPOSE
    assert repeat(OTHER_KIND, BUCKETS, 4).judge() == NO_PURPOSE


# ---- messages --------------------------------------------------------------------------------------------------------


def test_stages_also_send_alone() -> None:
    program = Program()
    for _ in range(2):  # 1F1B of the first of two stages
        program.exchange((SENT, 1, MB))
        for _ in range(7):
            program.exchange((SENT, 1, MB), (RECEIVED, 1, MB))
        program.exchange((RECEIVED, 1, MB))
    assert program.judge() == STAGES


def test_rings_and_one_direction_are_no_stages() -> None:
    ring, handover = Program(), Program()
    for _ in range(32):
        ring.exchange((SENT, 1, MB), (RECEIVED, 3, MB))
        handover.exchange((SENT, 1, MB))
    assert ring.judge() == NO_PURPOSE
    assert handover.judge() == NO_PURPOSE


@pytest.mark.parametrize(("varies", "purpose"), [(True, EXPERTS), (False, NO_PURPOSE)])
def test_tokens_go_to_all_experts_in_changing_sizes(varies: bool, purpose: int) -> None:
    """Equal sizes may be of experts with padding, of sequence parallelism or of a transpose."""
    generator, program = random.Random(2), Program()
    for _ in range(16):
        sizes = [MB + (generator.randrange(MB) if varies else 0) for _ in range(8)]
        sends = [(SENT, peer, sizes[peer]) for peer in range(4)]
        program.exchange(*sends, *((RECEIVED, peer, sizes[4 + peer]) for peer in range(4)))
    assert program.judge() == purpose


def test_messages_without_a_peer_have_no_purpose() -> None:
    program = Program()
    for _ in range(16):
        program.exchange((SENT, NULL, MB))
        program.exchange((RECEIVED, NULL, MB))
    assert program.judge() == NO_PURPOSE
