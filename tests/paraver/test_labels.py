"""Numbers and labels do not depend on the order of reports or names."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels, Numbering, Value, format_pcf, read_kept_labels
from nsys2prv_ng.paraver.model import TaskRows, TraceModel, format_row
from nsys2prv_ng.text.names import LABEL_LENGTH, to_one_line


def labels_of(*names, domains=()):
    labels = Labels()
    labels.handle(types.KERNEL)
    labels.name_ids("kernels", names)
    for domain in domains:
        labels.handle(families.make_nvtx_range(domain))
        labels.name_ids(f"nvtx {domain}", ["step"])
    return labels


def test_names_have_dense_ids_in_sorted_order_over_reports():
    for parts in permutations([["gemm", "copy"], ["axpy", "gemm"], []]):
        reports = [labels_of(*part) for part in parts]
        numbering = Numbering(reports)
        values = {name: value.number for name, value in numbering.values["kernels"].items()}
        assert values == {"axpy": 1, "copy": 2, "gemm": 3}
        for part, labels in zip(parts, reports, strict=True):
            numbers, starts, tables = numbering.maps(labels)
            assert numbers.tolist() == [63000006]
            assert tables[starts[0]] == 0
            local = labels.name_ids("kernels", part)
            assert tables[starts[0] + local].tolist() == [values[name] for name in part]


def test_nvtx_domains_keep_their_numbers_whatever_the_order():
    names = ["zeta", "NCCL", "", "alpha", "neSmiK"]
    for order in permutations(names):
        numbering = Numbering([labels_of(domains=[domain]) for domain in order])
        numbers = {t.member: numbering.number(t) for t in numbering.types if t.family}
        assert numbers == {"": 9600, "NCCL": 9500, "neSmiK": 81000, "alpha": 9700, "zeta": 9800}


def test_nvtx_domains_step_over_reserved_numbers():
    bases = families.assign_nvtx_bases(f"domain {i:04d}" for i in range(1000))
    blocks = [range(base, base + families.NVTX_BLOCK) for base in bases.values()]
    taken = [number for block in blocks for number in block]
    assert len(set(taken)) == len(taken)
    assert not set(taken) & set(range(81000, 81100))


def test_a_quantity_has_no_table_and_a_fixed_value_stays():
    labels = Labels()
    grid, memory = labels.handle(types.GRID[0]), labels.handle(types.MEMORY_OPERATION)
    numbers, starts, _ = Numbering([labels]).maps(labels)
    assert (numbers[grid], numbers[memory]) == (9101, 63000001)
    assert starts.tolist() == [-1, -1]


def test_assigned_values_replace_sorted_ones():
    labels = labels_of("b", "a")
    numbering = Numbering([labels], {"kernels": {"a": Value(70, "the second"), "b": Value(3, "the first")}})
    _, starts, tables = numbering.maps(labels)
    assert tables[starts[0] + np.array([1, 2])].tolist() == [3, 70]
    assert "VALUES\n0 End\n3 the first\n70 the second\n" in format_pcf(numbering)


def test_pcf_declares_every_type_once_and_unique_labels():
    labels = Labels()
    for t in (
        types.CUDA_API,
        *types.GRID,
        families.make_nvtx_range("a"),
        families.make_nvtx_lane("a", 3),
        families.make_nvtx_mark("a"),
    ):
        labels.handle(t)
    text = format_pcf(Numbering([labels]))
    declared = [line.split(" ", 2) for line in text.splitlines() if line.startswith("0 ") and line.count(" ") > 1]
    assert [int(number) for _, number, _ in declared] == [9101, 9102, 9103, 9700, 9763, 9750, 63000000, 63000007]
    assert len({label for *_, label in declared}) == len(declared)


def test_numbers_and_labels_of_types_are_unique():
    fixed = [t for t in vars(types).values() if isinstance(t, EventType) and not t.family]
    fixed += [
        t for group in vars(types).values() if isinstance(group, tuple) for t in group if isinstance(t, EventType)
    ]
    numbers = [t.number for t in fixed]
    assert len(set(numbers)) == len(numbers)
    names = [t.label for t in fixed]
    assert len(set(names)) == len(names)
    assert not any(42_000_000 <= number < 50_000_000 for number in numbers), "Paraver resets these when it cuts"


@pytest.mark.parametrize(
    ("label", "expected"),
    [("a\nb\t c", "a b c"), ("\x00\x1b[1m", "[1m"), ("", "(unnamed)"), (" \n", "(unnamed)"), ("é·漢", "é·漢")],
)
def test_labels_are_one_line(label, expected):
    assert to_one_line(label) == expected


def test_long_labels_are_cut_and_stay_apart():
    labels = [to_one_line("x" * 9000 + end) for end in ("", "a", "b")]
    assert len(set(labels)) == 3
    assert all(len(label) <= LABEL_LENGTH and label.startswith("x" * (LABEL_LENGTH - 10)) for label in labels)
    assert to_one_line("y" * LABEL_LENGTH) == "y" * LABEL_LENGTH


def kept_from(numbering, tmp_path):
    (tmp_path / "other.pcf").write_text(format_pcf(numbering))
    return read_kept_labels(tmp_path / "other.pcf")


def test_names_of_another_trace_keep_their_values(tmp_path):
    other = Numbering([labels_of("m", "d", "x", domains=["beta", "NCCL"])])
    labels = labels_of("a", "x", "z", "d", domains=["alpha", "beta"])
    numbering = Numbering([labels], kept=kept_from(other, tmp_path))
    values = {name: value.number for name, value in numbering.values["kernels"].items()}
    assert values == {"d": 1, "x": 3, "a": 4, "z": 5}  # m has 2 in the other trace and is not used here
    numbers = {t.member: numbering.number(t) for t in numbering.types if t.family == "nvtx"}
    assert numbers == {"beta": 9700, "alpha": 9800}


def test_metrics_of_another_trace_keep_their_numbers(tmp_path):
    def metrics(*pairs):
        labels = Labels()
        for name, number in pairs:
            labels.handle(families.make_gpu_metric(name, number))
        return labels

    other = Numbering([metrics(("SMs Active [Throughput %]", 3), ("GPC Clock [MHz]", 4))])
    numbering = Numbering(
        [metrics(("SMs Active [Throughput %]", 4), ("DRAM [MB/s]", 3))], kept=kept_from(other, tmp_path)
    )
    numbers = {t.member: numbering.number(t) for t in numbering.types}
    assert numbers["SMs Active [Throughput %]"] == 9403
    assert numbers["DRAM [MB/s]"] >= 9_000_000  # 9403 and 9404 are taken


def test_kept_labels_need_a_pcf(tmp_path):
    (tmp_path / "empty.pcf").write_text("")
    with pytest.raises(TranslationError, match=r"empty\.pcf.*\.pcf of another trace"):
        read_kept_labels(tmp_path / "empty.pcf")
    with pytest.raises(TranslationError, match="cannot be read"):
        read_kept_labels(tmp_path / "missing.pcf")


def test_domains_that_differ_in_what_no_line_shows(tmp_path):
    numbering = Numbering([labels_of(domains=["", " ", "a b", "a\nb", "a  b"])])
    text = format_pcf(numbering)
    titles = [line.split(" ", 2)[2] for line in text.splitlines() if line.endswith(" range") or " range (" in line]
    assert titles == ["NVTX range", "NVTX range (2)", "NVTX a b range", "NVTX a b range (2)", "NVTX a b range (3)"]


def test_half_of_a_character_is_no_part_of_a_label():
    """JSON may hold one, and no file can."""
    assert to_one_line("a\ud800b").encode() == b"a b"


def test_kept_values_at_the_end_of_their_range(tmp_path):
    """New names get the free values below; values that Paraver cannot label are not kept."""
    pcf = tmp_path / "other.pcf"
    lines = "2147483647 gemm\n2 copy\n-3 axpy\n"
    pcf.write_text(f"EVENT_TYPE\n0 63000006 CUDA kernel\nVALUES\n0 End\n{lines}")
    numbering = Numbering([labels_of("axpy", "copy", "dot", "gemm")], kept=read_kept_labels(pcf))
    values = {name: value.number for name, value in numbering.values["kernels"].items()}
    assert values == {"axpy": 1, "copy": 2, "dot": 3, "gemm": 2**31 - 1}


def test_kept_numbers_that_clash(tmp_path):
    pcf = tmp_path / "other.pcf"
    pcf.write_text("EVENT_TYPE\n0 63000006 NVTX a range\n")
    with pytest.raises(TranslationError, match="would have the same number 63000006"):
        Numbering([labels_of("gemm", domains=["a"])], kept=read_kept_labels(pcf))


def test_an_object_that_is_named_like_a_level():
    """Paraver would take such a line for the start of a level, which ends the names before it."""
    model = TraceModel(["LEVEL THREAD SIZE 9"], [TaskRows("LEVELS", 0, ["LEVEL", "LEVEL x"])])
    text = format_row(model, "a")
    levels = [line.split()[1] for line in text.splitlines() if line.startswith("LEVEL ")]
    assert levels == ["WORKLOAD", "APPL", "TASK", "THREAD", "SYSTEM", "NODE", "CPU"]
    assert "\n'LEVEL THREAD SIZE 9'\n" in text and "\nLEVELS\n" in text
