"""Values, classes, roles and states of MPI calls."""

from __future__ import annotations

import pytest

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import CLASSES, VALUES, assign_values, classify_call
from nsys2prv_ng.sources.mpi.messages import (
    COMPLETES,
    IMMEDIATE,
    PERSISTENT,
    RECEIVES,
    SENDS,
    SEVERAL_ROWS,
    STARTS,
    get_role,
    get_state,
)

# Values of each of Extrae's event types for MPI, in its mpi_prv_events.c.
EXTRAE = {
    50000001: "1-6 33-38 40-42 59-62 112 116-117 121-122 190-193",
    50000002: "7-18 30 80 154-171 174-183 214-215",
    50000003: "19-29 31-32 39 43-58 76-79 81-111 113-115 118-120 123-140 151-153 173 194 211-213",
    50000004: "63-75 172 184-189",
    50000005: "141-150 195-210",
}
# Some of the enumeration in its MPI_EventEncoding.h.
NUMBERS = {
    "MPI_Send": 1,
    "MPI_Irecv": 4,
    "MPI_Waitall": 6,
    "MPI_Bcast": 7,
    "MPI_Allreduce": 10,
    "MPI_Alltoallv": 12,
    "MPI_Allgatherv": 18,
    "MPI_Comm_rank": 19,
    "MPI_Comm_split": 23,
    "MPI_Scan": 30,
    "MPI_Init": 31,
    "MPI_Init_thread": 31,
    "MPI_Finalize": 32,
    "MPI_Test": 39,
    "MPI_Sendrecv": 41,
    "MPI_Cart_create": 43,
    "MPI_Cartdim_get": 50,
    "MPI_Waitsome": 60,
    "MPI_Win_create": 63,
    "MPI_Win_start": 69,
    "MPI_Win_complete": 70,
    "MPI_Reduce_scatter": 80,
    "MPI_Group_range_excl": 90,
    "MPI_Abort": 100,
    "MPI_Wtime": 110,
    "MPI_Pack_size": 120,
    "MPI_Start": 123,
    "MPI_Type_contiguous": 130,
    "MPI_Type_vector": 140,
    "MPI_File_open": 141,
    "MPI_File_write_at_all": 150,
    "MPI_Iallreduce": 155,
    "MPI_Iallgather": 160,
    "MPI_Iscatterv": 165,
    "MPI_Alltoallw": 170,
    "MPI_Neighbor_alltoallv": 180,
    "MPI_Compare_and_swap": 185,
    "MPI_Mprobe": 190,
    "MPI_File_write_all_begin": 195,
    "MPI_File_write_at_all_end": 200,
    "MPI_File_read_ordered_end": 205,
    "MPI_File_write_shared": 210,
    "MPI_Iexscan": 215,
}


def numbers(ranges: str) -> set[int]:
    limits = [tuple(map(int, part.split("-"))) for part in ranges.split()]
    return {number for limit in limits for number in range(limit[0], limit[-1] + 1)}


def test_values_are_extraes() -> None:
    assert {name: VALUES[name] for name in NUMBERS} == NUMBERS
    own = [value for name, value in VALUES.items() if name != "MPI_Init_thread"]
    assert len(own) == len(set(own))
    assert {value for value in own if value <= 215} == set(range(1, 216))
    assert min(value for value in own if value > 215) == 1001


def test_classes_are_extraes() -> None:
    type_of = {call_class: types.MPI_CALLS[call_class].number for call_class in CLASSES}
    values: dict[int, set[int]] = {}
    for name, value in VALUES.items():
        if value <= 215:
            values.setdefault(type_of[classify_call(name)], set()).add(value)
    assert values == {number: numbers(ranges) for number, ranges in EXTRAE.items()}
    for number, ranges in EXTRAE.items():
        (event_type,) = (call for call in types.MPI_CALLS.values() if call.number == number)
        assert {value for value in event_type.values or {} if value <= 215} == numbers(ranges)


@pytest.mark.parametrize(
    ("name", "call_class"),
    [
        ("MPI_Win_allocate", "rma"),
        ("MPI_Rput", "rma"),
        ("MPI_Raccumulate", "rma"),
        ("MPI_Win_lock_all", "rma"),
        ("MPI_File_set_view", "io"),
        ("MPI_File_iwrite_at_all", "io"),
        ("MPI_Allreduce_init", "collective"),
        ("MPI_Isendrecv", "p2p"),
        ("MPI_Get_count", "other"),
        ("MPI_Get_processor_name", "other"),
        ("MPI_Reduce_local", "other"),
        ("MPI_Comm_idup", "other"),
        ("MPIX_Query_cuda_support", "other"),
    ],
)
def test_classes_of_calls_that_extrae_has_not(name: str, call_class: str) -> None:
    assert classify_call(name) == call_class


def test_values_of_unknown_calls_do_not_depend_on_order() -> None:
    expected = {"MPI_Send": (1, "MPI_Send"), "MPIX_B": (2002, "MPIX_B"), "MPIX_A": (2001, "MPIX_A")}
    assert (
        assign_values(["MPI_Send", "MPIX_B", "MPIX_A"])
        == assign_values(["MPIX_A", "MPIX_B", "MPI_Send", "MPIX_A"])
        == expected
    )


def test_calls_that_share_a_value_share_a_label() -> None:
    assert assign_values(["MPI_Init_thread"]) == {"MPI_Init_thread": (31, "MPI_Init_thread")}
    both = (31, "MPI_Init or MPI_Init_thread")
    assert assign_values(["MPI_Init_thread", "MPI_Init"]) == {"MPI_Init": both, "MPI_Init_thread": both}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("MPI_Send", SENDS),
        ("MPI_Ssend", SENDS),
        ("MPI_Bsend", SENDS),
        ("MPI_Rsend", SENDS),
        ("MPI_Isend", SENDS | IMMEDIATE),
        ("MPI_Ibsend", SENDS | IMMEDIATE),
        ("MPI_Irsend", SENDS | IMMEDIATE),
        ("MPI_Issend", SENDS | IMMEDIATE),
        ("MPI_Recv", RECEIVES),
        ("MPI_Mrecv", RECEIVES),
        ("MPI_Irecv", RECEIVES | IMMEDIATE),
        ("MPI_Imrecv", RECEIVES | IMMEDIATE),
        ("MPI_Send_init", SENDS | PERSISTENT),
        ("MPI_Ssend_init", SENDS | PERSISTENT),
        ("MPI_Recv_init", RECEIVES | PERSISTENT),
        ("MPI_Sendrecv", SENDS | RECEIVES | SEVERAL_ROWS),
        ("MPI_Sendrecv_replace", SENDS | RECEIVES | SEVERAL_ROWS),
        ("MPI_Isendrecv", SENDS | RECEIVES | IMMEDIATE | SEVERAL_ROWS),
        ("MPI_Start", STARTS),
        ("MPI_Startall", STARTS | SEVERAL_ROWS),
        ("MPI_Wait", COMPLETES),
        ("MPI_Test", COMPLETES),
        ("MPI_Waitall", COMPLETES | SEVERAL_ROWS),
        ("MPI_Waitany", COMPLETES | SEVERAL_ROWS),
        ("MPI_Testsome", COMPLETES | SEVERAL_ROWS),
        *((name, 0) for name in ("MPI_Probe", "MPI_Improbe", "MPI_Bcast", "MPI_Iallreduce", "MPI_Bcast_init")),
        *((name, 0) for name in ("MPI_Psend_init", "MPI_Precv_init", "MPI_Test_cancelled", "MPI_Win_wait", "MPI_Scan")),
    ],
)
def test_roles(name: str, role: int) -> None:
    assert get_role(name) == role


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("MPI_Mrecv", types.WAITING_MESSAGE),
        ("MPI_Rsend", types.BLOCKING_SEND),
        ("MPI_Iprobe", types.TEST_PROBE),
        ("MPI_Testall", types.WAITING),
        ("MPI_Issend", types.IMMEDIATE_SEND),
        ("MPI_Imrecv", types.IMMEDIATE_RECEIVE),
        ("MPI_Sendrecv_replace", types.SEND_RECEIVE),
        ("MPI_Ibarrier", types.SYNCHRONIZATION),
        ("MPI_Neighbor_alltoallw", types.GROUP_COMMUNICATION),
        ("MPI_Comm_split", types.OTHERS),
        ("MPI_Cancel", types.OTHERS),
        ("MPI_Start", types.OTHERS),
        ("MPI_Rget", types.ONE_SIDED),
        ("MPI_File_read_ordered", types.INPUT_OUTPUT),
        ("MPIX_Anything", types.OTHERS),
    ],
)
def test_states(name: str, state: int) -> None:
    assert get_state(name) == state
    assert state in types.STATES
