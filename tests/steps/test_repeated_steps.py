"""The steps of made-up programs, whose steps are known, and of texts made by chance, which have none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.steps.repeated_steps import Candidate, find_candidates, name_delimiter
from nsys2prv_ng.steps.work import LaunchedWork, make_work

GRAPH = "graph 1"
FEWEST = 3
EVERY, BUSY = 1_000, 900
"""ns from launch to launch, and ns that an operation runs."""


def make(
    names: Sequence[str], pauses: dict[int, int] | None = None, lengths: dict[str, int] | None = None
) -> LaunchedWork:
    """Return operations that are launched one after the other, with pauses (ns) before some of them."""
    texts = sorted(set(names))
    length = np.array([(lengths or {}).get(name, BUSY) for name in names])
    launched, ready, end = 0, 0, []
    times = []
    for at, own in enumerate(length.tolist()):
        launched += EVERY + (pauses or {}).get(at, 0)
        ready = max(ready, launched) + own
        times.append(launched)
        end.append(ready)
    name = np.array([texts.index(own) for own in names], np.int64)
    is_graph = np.array([own == GRAPH for own in names], np.bool_)
    return make_work(texts, name, is_graph, np.array(times), np.array(end) - length, np.array(end))


def find(work: LaunchedWork) -> Candidate | None:
    """Return the best steps."""
    return next(iter(find_candidates(work, FEWEST)), None)


def find_starts(names: Sequence[str], **how: dict[int, int]) -> list[int]:
    """Return the limits of the steps; none without steps."""
    found = find(make(names, **how))
    return [] if found is None else found.limits.tolist()


def list_limits(steps: Sequence[Sequence[str]], first: int = 0) -> list[int]:
    return np.cumsum([first, *map(len, steps)]).tolist()


def join(steps: Sequence[Sequence[str]]) -> list[str]:
    return [name for step in steps for name in step]


def make_model(layers: int = 6, batches: int = 1, optimizer: str = "adam_kernel") -> list[str]:
    """Return a step of a training: micro-batches of a model with layers, then the optimizer."""
    forward = ["norm", "gemm", "flash_fwd", "gemm_wide", "add"] * layers
    backward = ["gemm_back", "norm_back", "gemm_back", "add"] * layers
    return ["embed", *forward, "loss", *backward, "embed_back"] * batches + [optimizer] * 3


HYDRO = [f"hydro {number}" for number in range(12)]


# ---- steps that are known --------------------------------------------------------------------------------------------


def test_steps_with_layers_and_micro_batches() -> None:
    """Neither a layer nor a micro-batch is a step."""
    for batches in (1, 4):
        steps = [make_model(batches=batches)] * 6
        assert find_starts(join(steps)) == list_limits(steps)


@pytest.mark.parametrize("optimizer", ["adam_kernel", "update"])
def test_every_fourth_step_prints(optimizer: str) -> None:
    """Four steps up to the next printed loss are not a step, whether or not the optimizer is known."""
    steps = [make_model(optimizer=optimizer) + ["abs", "mean"] * (number % 4 == 3) for number in range(14)]
    found = find(make(join(steps)))
    assert found is not None and found.steps == found.whole == 14
    assert 0.98 < found.similarity < 1


def test_steps_of_several_lengths() -> None:
    """As with sequences of several lengths: names differ by length, and so do numbers of operations."""
    random = np.random.default_rng(1)
    steps = []
    for layers in random.integers(5, 8, 20).tolist():
        steps.append([f"{name} {layers}" if name == "gemm_wide" else name for name in make_model(layers)])
    found = find(make(join(steps)))
    assert found is not None and found.limits.tolist() == list_limits(steps)
    assert 0.7 < found.similarity < 0.95


def test_a_partial_step_at_either_end() -> None:
    whole = [HYDRO] * 9
    names = [*HYDRO[7:], *join(whole), *HYDRO[:5]]
    found = find(make(names))
    assert found is not None
    assert found.steps == 9 and set(np.diff(found.limits).tolist()) == {len(HYDRO)}


def test_start_up_with_autotuning() -> None:
    """The steps are the last work, after a start-up that is longer than all steps and repeats, too."""
    tuning = join([["fill"] * 4 + [f"variant {number % 7}", "compare"] for number in range(300)])
    steps = [HYDRO] * 12
    assert find_starts([*tuning, *join(steps)]) == list_limits(steps, len(tuning))


def test_a_whole_graph_is_a_step_but_one_kernel_is_none() -> None:
    tuning = [f"variant {number}" for number in np.random.default_rng(4).integers(0, 9, 300)]
    tuning = join([[name] * 3 for name in tuning])
    found = find(make([*tuning, *[GRAPH] * 30]))
    assert found is not None and found.limits.tolist() == list(range(900, 931))
    assert name_delimiter(make([*tuning, *[GRAPH] * 30]), found.limits) == "CUDA graph"
    assert not find_starts([*tuning, *["kernel"] * 30])
    assert not find_starts(["kernel"] * 100)


def test_a_graph_and_what_is_printed_every_eighth_time() -> None:
    """What is printed has two more operations than a token, but takes little time."""
    names = join([[GRAPH] * 8 + ["max", "mean"] for _ in range(8)])
    found = find(make(names, lengths={GRAPH: 200_000}))
    assert found is not None and found.steps == 64


def test_pauses_delimit_equal_operations() -> None:
    """As where MPI exchanges data after every ten pairs of kernels."""
    names = ["gemm", "scale"] * 120
    every = dict.fromkeys(range(20, len(names), 20), 50000)
    assert find_starts(names, pauses=every) == list(range(0, len(names) + 1, 20))
    assert find_starts(names) == list(range(0, len(names) + 1, 2))


def test_operations_of_two_streams() -> None:
    """The order is that of launches: copies of a second stream run late, in the next step."""
    steps = 10
    launched = EVERY * np.arange(steps * len(HYDRO))
    begin = launched + 100
    begin[4 :: len(HYDRO)] += EVERY * len(HYDRO)  # launched in one step, run in the next
    name = np.tile(np.arange(len(HYDRO)), steps)
    order = np.argsort(begin)  # as in a report
    columns = (launched[order], begin[order], begin[order] + 50)
    work = make_work(HYDRO, name[order], np.zeros(order.size, np.bool_), *columns)
    found = find(work)
    assert found is not None and found.limits.tolist() == list(range(0, 121, 12))


def test_nodes_of_a_graph_are_launched_together() -> None:
    """A limit lies between launches, even if the same nodes come several times in one launch."""
    nodes, launches = ["gemm", "scale", "reduce"] * 4, 20
    launched = np.repeat(EVERY * 100 * np.arange(launches), len(nodes))
    begin = launched + np.tile(1_000 * np.arange(len(nodes)), launches)
    name = np.tile([0, 2, 1] * 4, launches)
    work = make_work(["gemm", "reduce", "scale"], name, np.zeros(name.size, np.bool_), launched, begin, begin + 900)
    found = find(work)
    assert found is not None and found.limits.tolist() == list(range(0, name.size + 1, len(nodes)))


def test_the_name_of_the_delimiter() -> None:
    """It is the optimizer, which ends the steps; else the first kernel."""
    for optimizer, name in (("adam_kernel", "adam_kernel"), ("update", "embed")):
        work = make(make_model(optimizer=optimizer) * 8)
        found = find(work)
        assert found is not None and name_delimiter(work, found.limits) == name


def test_the_order_of_a_report_does_not_matter() -> None:
    names = join([make_model() + ["print"] * (number % 4 == 3) for number in range(9)])
    work = make(names)
    order = np.random.default_rng(3).permutation(len(names))
    texts = sorted(work.texts, reverse=True)
    name = np.array([texts.index(work.texts[number]) for number in work.name])
    columns = (work.launched[order], work.begin[order], work.end[order])
    shuffled = make_work(texts, name[order], np.zeros(order.size, np.bool_), *columns)
    [expected, found] = [find_candidates(own, FEWEST) for own in (work, shuffled)]
    assert [(own.kind, own.limits.tolist()) for own in found] == [(own.kind, own.limits.tolist()) for own in expected]


# ---- no steps --------------------------------------------------------------------------------------------------------


def test_an_evaluation_is_not_what_a_training_repeats() -> None:
    """Neither where the evaluation is long, nor where it is the training without an optimizer."""
    forward = make_model()[:31]
    assert not find_starts([*make_model() * 4, *forward * 40])


def test_a_loop_in_a_small_part_of_a_program() -> None:
    random = np.random.default_rng(2)
    other = [f"other {number}" for number in random.integers(0, 40, 400)]
    assert not find_starts([*HYDRO * 5, *other])
    assert not find_starts([*other[:200], *HYDRO * 5, *other[200:]])


def test_layers_of_a_part_of_a_step() -> None:
    """A capture of less than a step shows the layers of a model; with what is around them, they are steps of it."""
    layer = ["norm", "gemm", "flash_fwd", "gemm_wide", "add", "gelu"]
    assert not find_starts(layer * 24)
    step = [*layer * 24, "norm_last", "gemm_head", "sample", "embed"]
    assert find_starts(step * 8) == list(range(0, 8 * len(step) + 1, len(step)))


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"], ["a", "b", "a", "b"], ["a", "b", "c"] * 2])
def test_too_few_operations(names: Sequence[str]) -> None:
    if names:
        assert not find_starts(names)


@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(3, 400))
def test_texts_made_by_chance_have_no_steps(seed: int, letters: int, size: int) -> None:
    random = np.random.default_rng(seed)
    assert not find_starts([f"kernel {number}" for number in random.integers(0, letters, size)])


# ---- insertions ------------------------------------------------------------------------------------------------------


@given(st.data(), st.integers(4, 20), st.sampled_from(["adam_kernel", "update"]), st.integers(1, 4))
def test_insertions_do_not_change_the_number_of_steps(
    data: st.DataObject, steps: int, optimizer: str, batches: int
) -> None:
    """A few operations with other names, or with names of the step, anywhere."""
    names = make_model(batches=batches if optimizer == "adam_kernel" else 1, optimizer=optimizer) * steps
    for _ in range(data.draw(st.integers(0, 4))):
        extra = data.draw(st.sampled_from(["print", "mean", "add", "gemm"]))
        names.insert(data.draw(st.integers(0, len(names))), extra)
    found = find(make(names))
    assert found is not None and found.steps == steps


# ---- names do not matter ---------------------------------------------------------------------------------------------


_HINTS = ("adam", "flash")
"""What the finder reads from names: these are of an optimizer, and of attention."""


def _rename(names: Sequence[str], seed: int) -> list[str]:
    """Return other names, in another order, for the same kernels. What names say of their kernels stays."""
    random = np.random.default_rng(seed)
    distinct = sorted(set(names))
    numbers = random.permutation(len(distinct)).tolist()
    new = {}
    for name, number in zip(distinct, numbers, strict=True):
        hint = next((hint for hint in _HINTS if hint in name), "kernel")
        new[name] = name if name == GRAPH else f"{random.integers(1 << 40):x} {hint} {number}"
    return [new[name] for name in names]


@st.composite
def programs(draw: st.DrawFn) -> list[str]:
    """Return steps with equal parts, start-up and a cut end, so that many delimiters are as good."""
    step = draw(st.lists(st.sampled_from("abcdefgh"), min_size=3, max_size=12))
    part = draw(st.lists(st.sampled_from("pqrs"), min_size=1, max_size=4))
    optimizer = draw(st.sampled_from([[], ["adam"], ["adam", "adam two"]]))
    steps = [step + part * draw(st.integers(1, 3)) + optimizer for _ in range(draw(st.integers(4, 12)))]
    return [*draw(st.lists(st.sampled_from("abcwxyz"), max_size=20)), *join(steps), *draw(st.sampled_from([[], step]))]


@given(programs() | st.just(join([HYDRO] * 9)) | st.just(make_model() * 6), st.integers(0, 1 << 30))
def test_other_names_for_the_same_kernels_give_the_same_steps(names: list[str], seed: int) -> None:
    """All candidates are the same in the same order, so that no rank chooses others either."""

    def list_candidates(names: Sequence[str]) -> list[tuple[str, list[int], tuple[float, ...]]]:
        found = find_candidates(make(names), FEWEST)
        return [(each.kind[0], each.limits.tolist(), (each.similarity, each.irregular, *each.rank)) for each in found]

    assert list_candidates(names) == list_candidates(_rename(names, seed))
