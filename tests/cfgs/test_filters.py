"""Filters for Paraver's own tools: their types are those of traces, and paramedir makes of a trace what they say."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.translation.translate import translate
from tests.cfgs.recorded import PARAMEDIR
from tests.cfgs.test_generated import CFGS, list_declared_labels
from tests.conftest import SAMPLES

has_paramedir = pytest.mark.skipif(PARAMEDIR is None, reason="the variable PARAMEDIR does not name paramedir")
REPORTS = sorted(SAMPLES.glob("ddp-2x2.rank0.sqlite"))
MOST_TYPES, MOST_COUNTED = 20, 15


def read_xml(name: str) -> ET.Element:
    return ET.parse(CFGS / f"filters/{name}.xml").getroot()


def read_kept(name: str) -> Callable[[int], bool]:
    """Whether a filter keeps a type, by its file alone."""
    words = [str(element.text).split("-") for element in read_xml(name).iter("type")]
    limits = [(int(word[0]), int(word[-1])) for word in words]
    assert len(limits) <= MOST_TYPES
    return lambda number: any(low <= number <= high for low, high in limits)


def test_types_are_those_of_traces() -> None:
    labels = list_declared_labels()
    kept = {name: {labels[number] for number in labels if read_kept(name)(number)} for name in ("overview", "nccl")}
    assert all(label == "Step" or label.startswith("NVTX") for label in kept["overview"])
    assert {"Step", "NVTX range", "NVTX neSmiK range"} <= kept["overview"]
    assert kept["nccl"] == {label for number, label in labels.items() if 9500 <= number < 9600} | {
        "NCCL kernel",
        "Communication phase",
        "Straggler",
        "Root cause of the arrival delay",
        "Arrival delay [ns]",
    }
    (counters,) = read_xml("kernels_per_10ms").iter("software_counters")
    named = {element.tag: str(element.text).split(";") for element in counters.iter() if "_events" in element.tag}
    assert {tag: [labels[int(number)] for number in numbers] for tag, numbers in named.items()} == {
        "count_events": ["CUDA kernel", "NCCL kernel"],
        "accum_events": ["Memory operation size [bytes]"],
        "keep_events": ["Step"],
    }
    assert all(len(numbers) <= MOST_COUNTED for numbers in named.values())


def test_the_overview_has_all_domains_of_nvtx() -> None:
    bases = families.assign_nvtx_bases(["", "neSmiK", *(f"domain {i}" for i in range(700))])
    keeps = read_kept("overview")
    assert all(keeps(base) and keeps(base + families.NVTX_BLOCK - 1) for base in bases.values())


@pytest.mark.parametrize("path", sorted(CFGS.glob("filters/*.xml")), ids=lambda path: path.stem)
def test_files_keep_the_rules_of_paravers_parser(path: Path) -> None:
    """It reads the second child of a list as its first element, and crashes at an element without text."""
    for element in ET.parse(path).iter():
        assert element.text
        if len(element):
            assert not element.text.strip() and "\n" in element.text
            assert all(child.tail and "\n" in child.tail for child in element)


# ---- the real program ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if PARAMEDIR is None:
        pytest.skip("the variable PARAMEDIR does not name paramedir")
    output = tmp_path_factory.mktemp("filters") / "x.prv"
    translate(REPORTS, output)
    return output


def apply_filter(trace: Path, name: str, *options: str) -> list[list[str]]:
    """The fields of each line that paramedir writes."""
    new = trace.with_name(f"{name}.prv")
    assert PARAMEDIR is not None
    command = [PARAMEDIR, *options, "-o", str(new), str(trace), str(CFGS / f"filters/{name}.xml")]
    environment = os.environ | {"HOME": str(trace.parent)}
    subprocess.run(command, capture_output=True, cwd=trace.parent, env=environment, check=True, timeout=60)
    return read_lines(new)


def read_lines(trace: Path) -> list[list[str]]:
    return [line.split(":") for line in trace.read_text().splitlines()]


@has_paramedir
@pytest.mark.slow
@pytest.mark.parametrize(("name", "states"), [("overview", True), ("nccl", False)])
def test_paramedir_keeps_what_a_filter_names(trace: Path, name: str, states: bool) -> None:
    keeps, wanted = read_kept(name), []
    for fields in read_lines(trace)[1:]:
        if fields[0] == "c" or (fields[0] == "1" and states):
            wanted.append(fields)
        elif fields[0] == "2":
            pairs = [fields[i : i + 2] for i in range(6, len(fields), 2) if keeps(int(fields[i]))]
            if pairs:
                wanted.append(fields[:6] + [word for pair in pairs for word in pair])
    lines = apply_filter(trace, name, "-f")
    assert {fields[0] for fields in lines[1:]} - {"c"} == ({"1", "2"} if states else {"2"})
    assert lines[1:] == wanted


@has_paramedir
@pytest.mark.slow
def test_paramedir_counts_kernels(trace: Path) -> None:
    """The counts of a row add up to its kernels, and are written no more often than every 10 ms."""
    wanted: Counter[tuple[str, str, int]] = Counter()
    for fields in read_lines(trace)[1:]:
        if fields[0] == "2":
            for i in range(6, len(fields), 2):
                number, value = int(fields[i]), int(fields[i + 1])
                if number in (types.KERNEL.number, types.NCCL_KERNEL.number) and value:
                    wanted[fields[3], fields[4], number] += 1
                elif number == types.MEMORY_BYTES.number:
                    wanted[fields[3], fields[4], number] += value
    lines = apply_filter(trace, "kernels_per_10ms", "-f", "-s")
    counted: Counter[tuple[str, str, int]] = Counter()
    times: dict[tuple[str, str, int], list[int]] = {}
    # Paraver's numbers of counters of types, with global counters.
    numbers = {t.number // 10000 + 20000 + t.number % 10000: t.number for t in (types.KERNEL, types.NCCL_KERNEL)}
    numbers[types.MEMORY_BYTES.number] = types.MEMORY_BYTES.number
    assert not set(numbers) - {types.MEMORY_BYTES.number} & set(list_declared_labels())
    for fields in lines[1:]:
        if fields[0] == "2" and int(fields[6]) in numbers:
            key = fields[3], fields[4], numbers[int(fields[6])]
            counted[key] += int(fields[7])
            times.setdefault(key, []).append(int(fields[5]))
    assert counted == wanted and min(wanted.values()) > 0
    gaps = [b - a for own in times.values() for a, b in pairwise(own[:-1])]
    assert len(gaps) > 10 and min(gaps) > 9_000_000
    assert {fields[7] for fields in lines[1:] if fields[0] == "1"} == {"1"}
