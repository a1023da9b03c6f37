"""Defines the labels of fixed values of event types. A number never changes its meaning; new values get new numbers.

Values and classes of MPI calls are Extrae's, so that its configurations show them: its numbers follow the order of the
enumeration MPIVal in its src/merger/paraver/MPI_EventEncoding.h. Calls that Extrae does not have get numbers from 1001
here. Unknown names get numbers from 2001 in sorted order over all reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nsys2prv_ng.grouping import group_by_key

# BasicAnalysis reads the values 3-6; the other kinds follow in the order of CUPTI's own numbers.
MEMORY_OPERATIONS = {
    3: "Memcpy device to device", 4: "Memcpy device to host", 5: "Memcpy host to device", 6: "Memset",
    7: "Memcpy host to array", 8: "Memcpy array to host", 9: "Memcpy array to array", 10: "Memcpy array to device",
    11: "Memcpy device to array", 12: "Memcpy host to host", 13: "Memcpy peer to peer",
    14: "Migration host to device", 15: "Migration device to host", 16: "Migration device to device",
    17: "Memcpy, unknown kind", 18: "Decompression",
}  # fmt: skip
BY_NCCL, BETWEEN_GPUS = ", by NCCL", ", between GPUs"
"""Ends of the names of copies that are communication, in tables."""
_BETWEEN_GPUS = (13, 16)
"""Those that are between GPUs unless the report says otherwise."""


def name_memory_operation(operation: int, copy_class: int) -> str:
    """Return the label of a memory operation, with what its class (0 without one) adds: whether it is communication."""
    label = MEMORY_OPERATIONS.get(operation, f"value {operation}")
    if copy_class == COMMUNICATION_CLASSES[0]:
        return f"{label}{BY_NCCL}"
    if copy_class == COMMUNICATION_CLASSES[1]:
        return label if operation in _BETWEEN_GPUS else f"{label}{BETWEEN_GPUS}"
    return f"{label}, within a GPU" if operation in _BETWEEN_GPUS else label


def communicates(label: str) -> bool:
    """Return whether a label of `name_memory_operation` is one of copies that are communication."""
    return label.endswith((BY_NCCL, BETWEEN_GPUS)) or label in [MEMORY_OPERATIONS[n] for n in _BETWEEN_GPUS]


# CUPTI's causes of migrations and kinds of access plus one, so that 0 stays free.
MIGRATION_CAUSES = {
    1: "Unknown", 2: "User prefetch", 3: "Page fault", 4: "Speculative prefetch", 5: "Eviction", 6: "Access counters",
}  # fmt: skip
ACCESSES = {1: "Unknown", 2: "Read", 3: "Write", 4: "Atomic", 5: "Prefetch"}


# CUPTI's memory kinds plus one, so that 0 stays free: in Paraver 0 reads as "nothing".
MEMORY_KINDS = {
    1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed", 6: "Device static", 7: "Managed static",
    8: "Unknown",
}  # fmt: skip


# sources/cuda/kernel_classes.py finds the class of a kernel from its name.
KERNEL_CLASSES = {
    1: "GEMM FP64", 2: "GEMM FP32", 3: "GEMM TF32", 4: "GEMM FP16", 5: "GEMM BF16", 6: "GEMM FP8", 7: "GEMM FP4",
    8: "GEMM integer", 9: "GEMM other", 10: "Convolution", 11: "Attention", 12: "Normalisation",
    13: "Softmax or loss", 14: "Elementwise", 15: "Optimizer", 16: "Reduction", 17: "Embedding or index",
    18: "Sort, scan or select", 19: "Copy, cast or fill", 20: "FFT", 21: "Sparse matrix", 22: "NCCL",
    23: "Communication other", 24: "Other",
}  # fmt: skip
COMMUNICATION_CLASSES = (22, 23)
"""Those of kernels and copies that move data between GPUs (sources/cuda/communication.py)."""


NOTHING_RECORDED = "Nothing recorded"
"""Label of a value 0 that does not close an interval: the quantity is unknown after it."""

# 8: nothing runs between two operations. 0: before the first operation of a capture, after its last one, and outside
# the selected time, where the activity is unknown.
_NOT_RUNNING = {0: NOTHING_RECORDED, 8: "Idle"}
# A CUDA graph that was traced as a whole may compute or communicate.
_RUNNING = {16: "opaque CUDA graph", 4: "memory", 1: "compute", 2: "communication"}


def _name_activity(activity: int) -> str:
    """Return the label of an activity, which is a sum of what runs."""
    *others, last = (name for kind, name in _RUNNING.items() if activity & kind)
    text = f"{', '.join(others)} and {last}".removeprefix(" and ")
    return text[0].upper() + text[1:]


GPU_ACTIVITIES = {
    activity: _NOT_RUNNING.get(activity) or _name_activity(activity) for activity in (*range(9), *range(16, 24))
}


BARRIERS = {
    1: "Barrier", 2: "Implicit barrier", 3: "Explicit barrier", 4: "Runtime barrier",
    8: "Implicit worksharing barrier", 9: "Implicit parallel barrier", 10: "Implicit teams barrier",
}  # fmt: skip
UNKNOWN_SYNCHRONIZATION = "Unknown synchronization"
WAITS = BARRIERS | {5: "Taskwait", 6: "Taskgroup", 7: "Reduction", 11: UNKNOWN_SYNCHRONIZATION}


WORKSHARING = {
    4: "Loop", 5: "Sections", 6: "Single", 7: "Master", 8: "Single (by another thread)", 9: "Workshare",
    10: "Distribute", 11: "Scope", 12: "Loop (static)", 13: "Loop (dynamic)", 14: "Loop (guided)",
    15: "Loop (other schedule)", 16: "Unknown worksharing",
}  # fmt: skip


OPENMP_POINTS = {
    1: "Task scheduled", 2: "Cancellation", 3: "Lock initialised", 4: "Lock destroyed", 5: "Work dispatched",
    6: "Flush",
}  # fmt: skip


PTHREAD_CALLS = {
    1: "pthread_exit", 2: "pthread_create", 3: "pthread_join", 4: "pthread_detach", 5: "pthread_rwlock_*wrlock",
    6: "pthread_rwlock_*rdlock", 7: "pthread_rwlock_unlock", 8: "pthread_mutex_*lock", 9: "pthread_mutex_unlock",
    10: "pthread_cond_signal", 11: "pthread_cond_broadcast", 12: "pthread_cond_*wait", 13: "pthread_barrier_wait",
} | {
    100: "pthread_cancel", 101: "pthread_kill", 102: "pthread_once", 103: "pthread_sigmask", 104: "pthread_sigqueue",
    105: "pthread_spin_lock", 106: "pthread_spin_trylock", 107: "pthread_spin_unlock", 108: "pthread_yield",
}  # fmt: skip
HANDS_OVER = ("pthread_cond_*wait", "pthread_join", "sem_wait", "sem_timedwait", "sem_clockwait")
"""Labels of the OS runtime calls in which a thread waits for another thread of its process."""


# CUPTI's kinds of OpenACC events; its 0 (invalid) is 17 here.
OPENACC_UNKNOWN = 17
OPENACC_KINDS = {
    1: "Device init", 2: "Device shutdown", 3: "Runtime shutdown", 4: "Enqueue launch", 5: "Enqueue upload",
    6: "Enqueue download", 7: "Wait", 8: "Implicit wait", 9: "Compute construct", 10: "Update", 11: "Enter data",
    12: "Exit data", 13: "Create", 14: "Delete", 15: "Alloc", 16: "Free", 17: "Unknown event",
}  # fmt: skip


# ENUM_VIDEO_ENGINE_TYPE, and ENUM_VIDEO_ENGINE_CODEC plus one, so that 0 stays free.
VIDEO_ENGINES = {0: "Video decoder engine", 1: "Video encoder engine", 2: "JPEG engine", 3: "Optical flow engine"}
VIDEO_CODEC_UNKNOWN = 9
VIDEO_CODECS = {
    1: "MPEG-2", 2: "VC-1", 3: "H.264", 4: "MPEG-4", 5: "VP8", 6: "VP9", 7: "HEVC", 8: "AV1", 9: "Unknown codec",
}  # fmt: skip


_EXTRAE = """
    Send Recv Isend Irecv Wait Waitall Bcast Barrier Reduce Allreduce Alltoall Alltoallv Gather Gatherv Scatter Scatterv
    Allgather Allgatherv Comm_rank Comm_size Comm_create Comm_dup Comm_split Comm_group Comm_free Comm_remote_group
    Comm_remote_size Comm_test_inter Comm_compare Scan Init Finalize Bsend Ssend Rsend Ibsend Issend Irsend Test Cancel
    Sendrecv Sendrecv_replace Cart_create Cart_shift Cart_coords Cart_get Cart_map Cart_rank Cart_sub Cartdim_get
    Dims_create Graph_get Graph_map Graph_create Graph_neighbors Graphdims_get Graph_neighbors_count Topo_test Waitany
    Waitsome Probe Iprobe Win_create Win_free Put Get Accumulate Win_fence Win_start Win_complete Win_post Win_wait
    Win_test Win_lock Win_unlock Pack Unpack Op_create Op_free Reduce_scatter Attr_delete Attr_get Attr_put
    Group_difference Group_excl Group_free Group_incl Group_intersection Group_rank Group_range_excl Group_range_incl
    Group_size Group_translate_ranks Group_union Group_compare Intercomm_create Intercomm_merge Keyval_free
    Keyval_create Abort Error_class Errhandler_create Errhandler_free Errhandler_get Error_string Errhandler_set
    Get_processor_name Initialized Wtick Wtime Address Bsend_init Buffer_attach Buffer_detach Request_free Recv_init
    Send_init Get_count Get_elements Pack_size Rsend_init Ssend_init Start Startall Testall Testany Test_cancelled
    Testsome Type_commit Type_contiguous Type_extent Type_free Type_hindexed Type_hvector Type_indexed Type_lb Type_size
    Type_struct Type_ub Type_vector File_open File_close File_read File_read_all File_write File_write_all File_read_at
    File_read_at_all File_write_at File_write_at_all Comm_spawn Comm_spawn_multiple Request_get_status Ireduce
    Iallreduce Ibarrier Ibcast Ialltoall Ialltoallv Iallgather Iallgatherv Igather Igatherv Iscatter Iscatterv
    Ireduce_scatter Iscan Reduce_scatter_block Ireduce_scatter_block Alltoallw Ialltoallw Get_accumulate
    Dist_graph_create Neighbor_allgather Ineighbor_allgather Neighbor_allgatherv Ineighbor_allgatherv Neighbor_alltoall
    Ineighbor_alltoall Neighbor_alltoallv Ineighbor_alltoallv Neighbor_alltoallw Ineighbor_alltoallw Fetch_and_op
    Compare_and_swap Win_flush Win_flush_all Win_flush_local Win_flush_local_all Mprobe Improbe Mrecv Imrecv
    Comm_split_type File_write_all_begin File_write_all_end File_read_all_begin File_read_all_end
    File_write_at_all_begin File_write_at_all_end File_read_at_all_begin File_read_at_all_end File_read_ordered
    File_read_ordered_begin File_read_ordered_end File_read_shared File_write_ordered File_write_ordered_begin
    File_write_ordered_end File_write_shared Comm_dup_with_info Dist_graph_create_adjacent Comm_create_group Exscan
    Iexscan
"""

_OWN = """
    Isendrecv Isendrecv_replace Psend_init Precv_init Pready Pready_range Pready_list Parrived Barrier_init Bcast_init
    Reduce_init Allreduce_init Alltoall_init Alltoallv_init Alltoallw_init Gather_init Gatherv_init Scatter_init
    Scatterv_init Allgather_init Allgatherv_init Scan_init Exscan_init Reduce_scatter_init Reduce_scatter_block_init
    Neighbor_allgather_init Neighbor_allgatherv_init Neighbor_alltoall_init Neighbor_alltoallv_init
    Neighbor_alltoallw_init Win_allocate Win_allocate_shared Win_create_dynamic Win_attach Win_detach Win_shared_query
    Win_lock_all Win_unlock_all Win_sync Rput Rget Raccumulate Rget_accumulate File_set_view File_get_view File_seek
    File_seek_shared File_get_position File_sync File_delete File_set_size File_get_size File_preallocate File_set_info
    File_get_info File_set_atomicity File_iread File_iwrite File_iread_at File_iwrite_at File_iread_all File_iwrite_all
    File_iread_at_all File_iwrite_at_all File_iread_shared File_iwrite_shared Comm_idup Comm_idup_with_info Comm_accept
    Comm_connect Comm_disconnect Comm_join Session_init Session_finalize Comm_create_from_group
    Intercomm_create_from_groups Reduce_local
"""

FIRST_OWN = 1001
FIRST_UNKNOWN = 2001

VALUES: dict[str, int] = {
    **{f"MPI_{name}": value for value, name in enumerate(_EXTRAE.split(), 1)},
    **{f"MPI_{name}": value for value, name in enumerate(_OWN.split(), FIRST_OWN)},
}
"""The value of each call by its name in C."""
VALUES["MPI_Init_thread"] = VALUES["MPI_Init"]  # As in Extrae: a program does either.

CLASSES = P2P, COLLECTIVE, OTHER, RMA, IO = "p2p", "collective", "other", "rma", "io"
"""Classes of calls, in the order of their types. As in Extrae, waits are point-to-point, starts and tests other."""

_COLLECTIVE_STEM = (
    r"barrier|bcast|reduce|allreduce|reduce_scatter(_block)?|scan|exscan|gatherv?|scatterv?"
    r"|(neighbor_)?(allgatherv?|alltoall[vw]?)"
)
_P2P_STEM = (
    r"I?[bsr]?send|I?m?recv|I?m?probe|I?sendrecv(_replace)?|Wait(all|any|some)?|Cancel|[pbsr]?send_init|p?recv_init"
    r"|Pready\w*|Parrived"
)
_CLASS_PATTERNS = {
    IO: r"MPI_File_\w+",
    RMA: r"MPI_(Win_\w+|Put|Get|(Get_)?[Aa]ccumulate|R(put|get|(get_)?accumulate)|Fetch_and_op|Compare_and_swap)",
    COLLECTIVE: rf"(?i)MPI_I?({_COLLECTIVE_STEM})(_init)?",
    P2P: rf"(?i)MPI_({_P2P_STEM})",
}


def classify_call(name: str) -> str:
    """Return the class of a call by its name alone, because nsys's tables mix classes (MPI_File_open is a
    collective)."""
    return next((call_class for call_class, pattern in _CLASS_PATTERNS.items() if re.fullmatch(pattern, name)), OTHER)


def list_labels(call_class: str) -> dict[int, str]:
    """Return the labels of the fixed values of a class."""
    labels: dict[int, str] = {}
    for name, value in VALUES.items():
        if classify_call(name) == call_class:
            labels.setdefault(value, name)
    return labels


def assign_values(names: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Return (value, label) of each call. Calls with the same value share a label with both names."""
    present = sorted(set(names))
    unknown = (name for name in present if name not in VALUES)
    values = VALUES | {name: value for value, name in enumerate(unknown, FIRST_UNKNOWN)}
    names_of_value = group_by_key((values[name], name) for name in present)
    return {name: (values[name], " or ".join(names_of_value[values[name]])) for name in present}
