"""The presets in cfgs/ match their declarations, and name only what a trace can hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfgs.generate.cfg_text import format_cfg
from cfgs.generate.files import PRESETS, make_files
from cfgs.generate.paraver_cfg import TRACE_LACKS, Events, Preset, Window
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType

CFGS = Path(__file__).parents[2] / "cfgs"

# The patterns of presets, each with NVIDIA's names of the metrics that it must match, on several kinds of GPU.
METRICS = {
    "SM* Active [*%]": ["SMs Active [Throughput %]", "SM Active [Throughput %]"],
    "SM Issue* [*%]": ["SM Issue [Throughput %]"],
    "Tensor Active* [*%]": ["Tensor Active [Throughput %]", "Tensor Active / FP16 Active [Throughput %]"],
    "*RAM Read Bandwidth [*%]": ["DRAM Read Bandwidth [Throughput %]", "VRAM Read Bandwidth [Throughput %]"],
    "*RAM Write Bandwidth [*%]": ["DRAM Write Bandwidth [Throughput %]", "VRAM Write Bandwidth [Throughput %]"],
    "NVLink RX Requests User Data [*%]": ["NVLink RX Requests User Data [Throughput %]"],
    "NVLink RX Responses User Data [*%]": ["NVLink RX Responses User Data [Throughput %]"],
    "NVLink TX Requests User Data [*%]": ["NVLink TX Requests User Data [Throughput %]"],
    "NVLink TX Responses User Data [*%]": ["NVLink TX Responses User Data [Throughput %]"],
    "PCIe RX Throughput [*%]": ["PCIe RX Throughput [Throughput %]"],
    "PCIe TX Throughput [*%]": ["PCIe TX Throughput [Throughput %]"],
    **{
        f"{link}: Bytes {way} [*": [f"{link}: Bytes {way} [bytes/ms]"]
        for link in ("IB", "Eth")
        for way in ("received", "sent")
    },
    **{f"Plugin: {way}_bytes*": [f"Plugin: {way}_bytes"] for way in ("rx", "tx")},
}
OTHER_METRICS = [
    "GR Active [Throughput %]",
    "Unallocated Warps in Active SMs [Throughput %]",
    "NVLink RX Requests Protocol Data [Throughput %]",
    "NVLink TX Responses Protocol Data [Throughput %]",
    "IB: Packets sent [packets/ms]",
    "IPoIB: Bytes sent [bytes/ms]",
]


def list_declared_labels() -> dict[int, str]:
    """Return the labels of all event types by number, without GPU metrics and NVTX domains without fixed numbers."""
    fixed: list[EventType] = []
    for value in vars(types).values():
        group = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        fixed += [event_type for event_type in group if isinstance(event_type, EventType)]
    labels = {event_type.number: event_type.title for event_type in fixed}
    for domain, base in families.NVTX_RESERVED.items():
        ranges = [
            families.make_nvtx_range(domain),
            *(families.make_nvtx_on_gpu(domain, lane) for lane in range(families.NVTX_GPU_LANES)),
        ]
        labels |= {base + event_type.number: event_type.title for event_type in ranges}
    return labels


def _list_events(preset: Preset) -> list[Events]:
    return [view.events for view in preset.views if isinstance(view, Window)]


def _matches(pattern: str, label: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), label) is not None


def test_committed_files_match_the_declarations() -> None:
    files = (*CFGS.glob("*/*.cfg"), *CFGS.glob("*.md"), *CFGS.glob("*.xml"), *CFGS.glob("*/*.xml"))
    present = {path.relative_to(CFGS).as_posix() for path in files}
    wanted = make_files()
    assert present == set(wanted)
    differ = [path for path, text in wanted.items() if (CFGS / path).read_bytes().decode() != text]
    assert not differ, "run python -m cfgs.generate"


def test_summaries_differ_and_are_one_line() -> None:
    summaries = [preset.summary for preset in PRESETS]
    assert len(set(summaries)) == len(PRESETS)
    assert all(summary and "\n" not in summary and "|" not in summary for summary in summaries)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.path)
def test_numbers_and_labels_of_types_are_those_of_traces(preset: Preset) -> None:
    declared = list_declared_labels()
    for events in _list_events(preset):
        for number, label in events.types:
            if number == TRACE_LACKS:
                assert "*" in label
            else:
                assert declared[number] == label


def test_no_type_has_the_number_that_stands_beside_patterns() -> None:
    assert TRACE_LACKS not in list_declared_labels()
    assert families.OTHER_GPU_METRIC_NUMBERS.start > TRACE_LACKS
    assert not any(number <= TRACE_LACKS < number + families.NVTX_BLOCK for number in families.NVTX_RESERVED.values())


def test_patterns_match_exactly_the_metrics_they_are_meant_for() -> None:
    patterns = {
        label
        for preset in PRESETS
        for events in _list_events(preset)
        for number, label in events.types
        if number == TRACE_LACKS and not label.startswith("NVTX")
    }
    assert patterns == set(METRICS)
    known = [*OTHER_METRICS, *(name for names in METRICS.values() for name in names)]
    for pattern, names in METRICS.items():
        assert [name for name in known if _matches(pattern, name)] == names


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.path)
def test_a_preset_loads_on_any_trace(preset: Preset) -> None:
    text = format_cfg(preset)
    # If the trace has none of the types of a file, Paraver refuses it unless `All` is selected. Rows by number would
    # fit only one trace.
    functions = [line for line in text.splitlines() if line.startswith("window_selected_functions")]
    assert any("{evt_type, All}" in line for line in functions)
    assert set(re.findall(r"window_object .*", text)) == {"window_object appl { 1, { All } }"}
    assert all(int(re.search(r"\d+", line)[0]) == line.count("{") - 2 for line in functions)  # type: ignore[index]
