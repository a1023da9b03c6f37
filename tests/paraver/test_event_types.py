"""The states, tags and families of types that users' cfgs rely on; `tests/test_stability.py` has the other types.

They are written down once more here, and not taken from the package: a change of this file breaks cfgs.
"""

from __future__ import annotations

from nsys2prv_ng.paraver import event_types, families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels, Numbering
from tests.test_stability import list_types

STATES = {
    0: ("Idle", (117, 195, 255)),
    1: ("Running", (0, 0, 255)),
    3: ("Waiting a message", (255, 0, 0)),
    4: ("Blocking Send", (255, 0, 174)),
    5: ("Synchronization", (179, 0, 0)),
    6: ("Test/Probe", (0, 255, 0)),
    8: ("Wait/WaitAll", (235, 0, 0)),
    9: ("Blocked", (0, 162, 0)),
    10: ("Immediate Send", (255, 0, 255)),
    11: ("Immediate Receive", (100, 100, 177)),
    12: ("I/O", (172, 174, 41)),
    13: ("Group Communication", (255, 144, 26)),
    15: ("Others", (192, 224, 0)),
    16: ("Send Receive", (66, 66, 66)),
    17: ("Memory transfer", (255, 0, 96)),
    18: ("Profiling", (169, 169, 169)),
    25: ("One-sided op", (116, 116, 116)),
}
"""Name and colour of each state."""

NVTX = {
    0: "NVTX D range",
    50: "NVTX D mark",
    51: "NVTX D category",
    52: "NVTX D number",
    53: "NVTX D ended by thread",
    54: "NVTX D payload",
    55: "NVTX D payload (real)",
    56: "NVTX D payload (JSON)",
    57: "NVTX D operator FLOPs [FLOP]",
    **{20 + lane: f"NVTX D range on GPU, lane {lane + 1}" for lane in range(16)},
    **{60 + lane: f"NVTX D start/end range, lane {lane + 1}" for lane in range(40)},
}
"""Label of each type in the block of an NVTX domain D, by its offset in the block."""


def list_nvtx_types(domain: str) -> list[EventType]:
    """Return every type in the block of an NVTX domain."""
    return [
        families.make_nvtx_range(domain),
        families.make_nvtx_mark(domain),
        families.make_nvtx_category(domain),
        families.make_nvtx_number(domain),
        families.make_nvtx_end_thread(domain),
        families.make_nvtx_payload(domain),
        families.make_nvtx_real_payload(domain),
        families.make_nvtx_json_payload(domain),
        families.make_nvtx_flops(domain),
        *(families.make_nvtx_on_gpu(domain, lane) for lane in range(families.NVTX_GPU_LANES)),
        *(families.make_nvtx_lane(domain, lane) for lane in range(families.NVTX_LANES)),
    ]


def number_types(*types: EventType) -> dict[str, int]:
    """Return the numbers that types of families get in a trace with these types only, by title."""
    labels = Labels()
    for event_type in types:
        labels.handle(event_type)
    numbering = Numbering([labels])
    return {event_type.title: numbering.number(event_type) for event_type in types}


# ---- fixed types -----------------------------------------------------------------------------------------------------


def test_percentages_have_two_decimals() -> None:
    precise = {event_type.number: event_type.precision for event_type in list_types() if event_type.precision}
    assert precise == dict.fromkeys(range(63000440, 63000448), 2)


def test_values_of_ncclRedOp_t() -> None:  # noqa: N802 (NCCL's name)
    assert event_types.NCCL_OPERATIONS == {"Sum": 1, "Product": 2, "Max": 3, "Min": 4, "Avg": 5}


def test_states() -> None:
    assert event_types.STATES == STATES


def test_tags() -> None:
    tags = (event_types.TAG_LAUNCH, event_types.TAG_COPY, event_types.TAG_NCCL)
    assert tags == (55001, 55002, 55004)
    assert (event_types.TAG_RELEASE, event_types.TAG_PATH) == (55005, 55006)


# ---- types of families -----------------------------------------------------------------------------------------------


def test_types_of_an_nvtx_domain() -> None:
    types = list_nvtx_types("D")
    assert {event_type.number: event_type.title for event_type in types} == NVTX
    assert [event_type.number for event_type in types if event_type.precision] == [55]
    assert families.make_nvtx_real_payload("D").precision == 6


def test_blocks_of_nvtx_domains() -> None:
    assert families.NVTX_RESERVED == {"": 9600, "NCCL": 9500, "neSmiK": 81000, "GIL Trace": 81100}
    ranges = [families.make_nvtx_range(domain) for domain in ("", "NCCL", "neSmiK", "beta", "alpha")]
    assert number_types(*ranges) == {
        "NVTX range": 9600,
        "NVTX NCCL range": 9500,
        "NVTX neSmiK range": 81000,
        "NVTX alpha range": 9700,
        "NVTX beta range": 9800,
    }


def test_gpu_metrics() -> None:
    """A metric has 9400 plus nsys's id; one whose id is above 99 has a number that follows from its name."""
    clock, active = families.make_gpu_metric("GPC Clock [MHz]", 0), families.make_gpu_metric("SMs Active [%]", 200)
    assert number_types(clock, active) == {"GPC Clock [MHz]": 9400, "SMs Active [%]": 9048836}
    assert (clock.precision, active.precision) == (6, 0)


def test_metrics_of_nodes() -> None:
    """A raw counter has 66600000 plus nsys's id; all others have numbers that follow from source, name and unit."""
    metrics = (
        families.make_node_metric("cpu_counters", "Cycles", counter_id=17),
        families.make_node_metric("network_metrics", "IB: Bytes sent", "bytes/ms"),
        families.make_node_metric("plugin_metrics", "Plugin: load", real=True),
    )
    assert number_types(*metrics) == {"Cycles": 66600017, "IB: Bytes sent [bytes/ms]": 9712062, "Plugin: load": 9827393}
    assert [metric.precision for metric in metrics] == [0, 0, 6]
