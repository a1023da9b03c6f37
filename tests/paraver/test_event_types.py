"""The numbers and labels of types, values, states and tags that users' cfgs rely on.

They are written down once more here, and not taken from the package: a change of this file breaks cfgs. Only new types
and values may be added.
"""

from __future__ import annotations

from collections.abc import Mapping

from nsys2prv_ng.paraver import event_types, families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels, Numbering

TYPES = {
    9101: "Grid X [blocks]",
    9102: "Grid Y [blocks]",
    9103: "Grid Z [blocks]",
    9104: "Block X [threads]",
    9105: "Block Y [threads]",
    9106: "Block Z [threads]",
    9107: "Static shared memory [bytes per block]",
    9108: "Dynamic shared memory [bytes per block]",
    9109: "Local memory [bytes per thread]",
    9110: "Registers [per thread]",
    9200: "Correlation id",
    9301: "CUDA event id",
    9302: "CUDA event or synchronization device",
    9303: "CUDA event or synchronization stream",
    9304: "CUDA event or synchronization context",
    9501: "NCCL communicator",
    9502: "NCCL collective size [bytes]",
    9503: "NCCL reduction operation",
    9504: "NCCL root",
    9505: "NCCL send peer",
    9506: "NCCL send size [bytes]",
    9507: "NCCL receive peer",
    9508: "NCCL receive size [bytes]",
    9509: "NCCL sequence number",
    9510: "NCCL calls in the kernel",
    9511: "NCCL operation on the GPU",
    9512: "NCCL proxy",
    30000000: "Sampled functions",
    30000200: "Sampled module",
    30000300: "Sampled Python functions",
    50000001: "MPI Point-to-point",
    50000002: "MPI Collective Comm",
    50000003: "MPI Other",
    50000004: "MPI One-sided",
    50000005: "MPI I/O",
    50100001: "MPI collective sent [bytes]",
    50100002: "MPI collective received [bytes]",
    50100003: "MPI collective root",
    50100004: "MPI collective communicator",
    50100011: "MPI partner",
    50100012: "MPI tag",
    50100013: "MPI message size [bytes]",
    50100014: "MPI communicator",
    50100015: "MPI Sendrecv source",
    50100016: "MPI Sendrecv received tag",
    50100017: "MPI Sendrecv received size [bytes]",
    60000001: "OpenMP parallel",
    60000002: "OpenMP worksharing",
    60000005: "OpenMP barrier",
    60000006: "OpenMP critical section",
    60000008: "OpenMP atomic",
    60000009: "OpenMP lock",
    60000018: "OpenMP parallel function",
    60000022: "OpenMP taskwait",
    60000023: "OpenMP task",
    60000024: "OpenMP task creation",
    60000027: "OpenMP taskgroup",
    60000028: "OpenMP task id",
    60000029: "OpenMP taskloop",
    60000033: "OpenMP ordered section",
    60000040: "OpenMP thread",
    60000041: "OpenMP reduction",
    60000042: "OpenMP wait in synchronization",
    60000043: "OpenMP other synchronization",
    60000044: "OpenMP event",
    61000000: "pthread call",
    63000000: "CUDA API call",
    63000001: "Memory operation",
    63000002: "Memory operation size [bytes]",
    63000006: "CUDA kernel",
    63000007: "NCCL kernel",
    63000008: "CUDA graph",
    63000100: "CUDA graph id",
    63000101: "CUDA executable graph id",
    63000102: "CUDA graph node id",
    63000103: "CUDA graph creation",
    63000104: "Original CUDA graph or node id",
    63000200: "Kernel class",
    63000210: "Copy source memory kind",
    63000211: "Copy destination memory kind",
    63000212: "Migration cause",
    63000220: "CUDA synchronization",
    63000221: "CUDA stream waited on",
    63000222: "CUDA event recorded",
    63000230: "cuBLAS call",
    63000231: "cuDNN call",
    63000240: "GPU page faults",
    63000241: "GPU page fault count",
    63000242: "GPU page fault duration [ns]",
    63000243: "GPU page fault address",
    63000244: "CPU page fault function",
    63000245: "CPU page fault address",
    63000250: "GPU context",
    63000260: "Video encoder call",
    63000261: "Video decoder call",
    63000262: "JPEG call",
    63000263: "Video engine",
    63000300: "nsys capture",
    63000400: "GPU activity",
    63000401: "Kernels running",
    63000402: "Kernels in flight",
    63000403: "GPU idle gap [ns]",
    63000404: "Kernel queue delay [ns]",
    63000410: "Communication phase",
    63000411: "Straggler",
    63000412: "Root cause of the arrival delay",
    63000413: "GPU activity with waits",
    63000414: "Arrival delay [ns]",
    63000420: "Critical path",
    63000430: "Step",
    63000431: "Step on the host",
    63000440: "GPU time in compute [%]",
    63000441: "GPU time in communication [%]",
    63000442: "GPU time in exposed communication [%]",
    63000443: "GPU time in exposed wait [%]",
    63000444: "GPU time in memory operations [%]",
    63000445: "GPU idle time [%]",
    63000446: "Mean kernels in flight",
    63000447: "GPU time in opaque CUDA graphs alone [%]",
    66000000: "OpenACC other",
    66000001: "OpenACC data",
    66000002: "OpenACC launch",
    66100000: "OpenACC other: source line",
    66100001: "OpenACC data: source line",
    66100002: "OpenACC launch: source line",
    66200000: "OpenACC other: function",
    66200001: "OpenACC data: function",
    66200002: "OpenACC launch: function",
    66300001: "OpenACC data size [bytes]",
    66300002: "OpenACC variable",
    66300003: "OpenACC kernel launched",
    66300004: "OpenACC gangs",
    66300005: "OpenACC workers",
    66300006: "OpenACC vector length",
    66400000: "OS runtime call",
    66410000: "System call",
    66420000: "UCX call",
    66420001: "UCX message size [bytes]",
    66420002: "UCX tag",
    66420003: "UCX peer",
    66420004: "UCX transfer size [bytes]",
    66500001: "CUDA memory allocated [bytes]",
    66500002: "CUDA memory freed [bytes]",
    66500003: "CUDA memory kind",
    66500004: "CUDA memory lifetime [ns]",
    66500005: "CUDA memory GPU",
    66500010: "CUDA memory in use: pageable [bytes]",
    66500011: "CUDA memory in use: pinned [bytes]",
    66500012: "CUDA memory in use: device [bytes]",
    66500013: "CUDA memory in use: array [bytes]",
    66500014: "CUDA memory in use: managed [bytes]",
    66500015: "CUDA memory in use: device static [bytes]",
    66500016: "CUDA memory in use: managed static [bytes]",
    66500017: "CUDA memory in use: unknown [bytes]",
    66700000: "On CPU",
    66800000: "Profiler overhead",
    66900000: "nsys warning or error",
    66910000: "InfiniBand congestion",
    66910001: "Congested packet source LID",
    66910002: "Congested packet destination LID",
    66910003: "Congested packet ingress port",
    66910004: "Congested packet egress port",
    **{30000000 + depth: f"Sampled functions (depth {depth})" for depth in range(1, 100)},
    **{30000300 + depth: f"Sampled Python functions (depth {depth})" for depth in range(1, 100)},
    **{70000000 + level: f"Caller at level {level}" for level in range(1, 101)},
    **{63000509 + lane: f"Video decoder engine, lane {lane}" for lane in range(1, 9)},
    **{63000519 + lane: f"Video encoder engine, lane {lane}" for lane in range(1, 9)},
    **{63000529 + lane: f"JPEG engine, lane {lane}" for lane in range(1, 9)},
    **{63000539 + lane: f"Optical flow engine, lane {lane}" for lane in range(1, 9)},
    **{66420009 + lane: f"UCX transfer, lane {lane}" for lane in range(1, 17)},
}
"""Label, with its unit, of each type in `event_types`, by number."""

_MPI = {
    50000001: """
        1 Send 2 Recv 3 Isend 4 Irecv 5 Wait 6 Waitall 33 Bsend 34 Ssend 35 Rsend 36 Ibsend 37 Issend 38 Irsend
        40 Cancel 41 Sendrecv 42 Sendrecv_replace 59 Waitany 60 Waitsome 61 Probe 62 Iprobe 112 Bsend_init 116 Recv_init
        117 Send_init 121 Rsend_init 122 Ssend_init 190 Mprobe 191 Improbe 192 Mrecv 193 Imrecv 1001 Isendrecv
        1002 Isendrecv_replace 1003 Psend_init 1004 Precv_init 1005 Pready 1006 Pready_range 1007 Pready_list
        1008 Parrived
    """,
    50000002: """
        7 Bcast 8 Barrier 9 Reduce 10 Allreduce 11 Alltoall 12 Alltoallv 13 Gather 14 Gatherv 15 Scatter 16 Scatterv
        17 Allgather 18 Allgatherv 30 Scan 80 Reduce_scatter 154 Ireduce 155 Iallreduce 156 Ibarrier 157 Ibcast
        158 Ialltoall 159 Ialltoallv 160 Iallgather 161 Iallgatherv 162 Igather 163 Igatherv 164 Iscatter 165 Iscatterv
        166 Ireduce_scatter 167 Iscan 168 Reduce_scatter_block 169 Ireduce_scatter_block 170 Alltoallw 171 Ialltoallw
        174 Neighbor_allgather 175 Ineighbor_allgather 176 Neighbor_allgatherv 177 Ineighbor_allgatherv
        178 Neighbor_alltoall 179 Ineighbor_alltoall 180 Neighbor_alltoallv 181 Ineighbor_alltoallv
        182 Neighbor_alltoallw 183 Ineighbor_alltoallw 214 Exscan 215 Iexscan 1009 Barrier_init 1010 Bcast_init
        1011 Reduce_init 1012 Allreduce_init 1013 Alltoall_init 1014 Alltoallv_init 1015 Alltoallw_init 1016 Gather_init
        1017 Gatherv_init 1018 Scatter_init 1019 Scatterv_init 1020 Allgather_init 1021 Allgatherv_init 1022 Scan_init
        1023 Exscan_init 1024 Reduce_scatter_init 1025 Reduce_scatter_block_init 1026 Neighbor_allgather_init
        1027 Neighbor_allgatherv_init 1028 Neighbor_alltoall_init 1029 Neighbor_alltoallv_init
        1030 Neighbor_alltoallw_init
    """,
    50000003: """
        19 Comm_rank 20 Comm_size 21 Comm_create 22 Comm_dup 23 Comm_split 24 Comm_group 25 Comm_free
        26 Comm_remote_group 27 Comm_remote_size 28 Comm_test_inter 29 Comm_compare 31 Init 32 Finalize 39 Test
        43 Cart_create 44 Cart_shift 45 Cart_coords 46 Cart_get 47 Cart_map 48 Cart_rank 49 Cart_sub 50 Cartdim_get
        51 Dims_create 52 Graph_get 53 Graph_map 54 Graph_create 55 Graph_neighbors 56 Graphdims_get
        57 Graph_neighbors_count 58 Topo_test 76 Pack 77 Unpack 78 Op_create 79 Op_free 81 Attr_delete 82 Attr_get
        83 Attr_put 84 Group_difference 85 Group_excl 86 Group_free 87 Group_incl 88 Group_intersection 89 Group_rank
        90 Group_range_excl 91 Group_range_incl 92 Group_size 93 Group_translate_ranks 94 Group_union 95 Group_compare
        96 Intercomm_create 97 Intercomm_merge 98 Keyval_free 99 Keyval_create 100 Abort 101 Error_class
        102 Errhandler_create 103 Errhandler_free 104 Errhandler_get 105 Error_string 106 Errhandler_set
        107 Get_processor_name 108 Initialized 109 Wtick 110 Wtime 111 Address 113 Buffer_attach 114 Buffer_detach
        115 Request_free 118 Get_count 119 Get_elements 120 Pack_size 123 Start 124 Startall 125 Testall 126 Testany
        127 Test_cancelled 128 Testsome 129 Type_commit 130 Type_contiguous 131 Type_extent 132 Type_free
        133 Type_hindexed 134 Type_hvector 135 Type_indexed 136 Type_lb 137 Type_size 138 Type_struct 139 Type_ub
        140 Type_vector 151 Comm_spawn 152 Comm_spawn_multiple 153 Request_get_status 173 Dist_graph_create
        194 Comm_split_type 211 Comm_dup_with_info 212 Dist_graph_create_adjacent 213 Comm_create_group 1067 Comm_idup
        1068 Comm_idup_with_info 1069 Comm_accept 1070 Comm_connect 1071 Comm_disconnect 1072 Comm_join
        1073 Session_init 1074 Session_finalize 1075 Comm_create_from_group 1076 Intercomm_create_from_groups
        1077 Reduce_local
    """,
    50000004: """
        63 Win_create 64 Win_free 65 Put 66 Get 67 Accumulate 68 Win_fence 69 Win_start 70 Win_complete 71 Win_post
        72 Win_wait 73 Win_test 74 Win_lock 75 Win_unlock 172 Get_accumulate 184 Fetch_and_op 185 Compare_and_swap
        186 Win_flush 187 Win_flush_all 188 Win_flush_local 189 Win_flush_local_all 1031 Win_allocate
        1032 Win_allocate_shared 1033 Win_create_dynamic 1034 Win_attach 1035 Win_detach 1036 Win_shared_query
        1037 Win_lock_all 1038 Win_unlock_all 1039 Win_sync 1040 Rput 1041 Rget 1042 Raccumulate 1043 Rget_accumulate
    """,
    50000005: """
        141 File_open 142 File_close 143 File_read 144 File_read_all 145 File_write 146 File_write_all 147 File_read_at
        148 File_read_at_all 149 File_write_at 150 File_write_at_all 195 File_write_all_begin 196 File_write_all_end
        197 File_read_all_begin 198 File_read_all_end 199 File_write_at_all_begin 200 File_write_at_all_end
        201 File_read_at_all_begin 202 File_read_at_all_end 203 File_read_ordered 204 File_read_ordered_begin
        205 File_read_ordered_end 206 File_read_shared 207 File_write_ordered 208 File_write_ordered_begin
        209 File_write_ordered_end 210 File_write_shared 1044 File_set_view 1045 File_get_view 1046 File_seek
        1047 File_seek_shared 1048 File_get_position 1049 File_sync 1050 File_delete 1051 File_set_size
        1052 File_get_size 1053 File_preallocate 1054 File_set_info 1055 File_get_info 1056 File_set_atomicity
        1057 File_iread 1058 File_iwrite 1059 File_iread_at 1060 File_iwrite_at 1061 File_iread_all 1062 File_iwrite_all
        1063 File_iread_at_all 1064 File_iwrite_at_all 1065 File_iread_shared 1066 File_iwrite_shared
    """,
}
"""Values of the calls by the type of their class, and their names without MPI_."""

_MEMORY_KINDS = {
    1: "Pageable",
    2: "Pinned",
    3: "Device",
    4: "Array",
    5: "Managed",
    6: "Device static",
    7: "Managed static",
    8: "Unknown",
}
_CODECS = {1: "MPEG-2", 2: "VC-1", 3: "H.264", 4: "MPEG-4", 5: "VP8", 6: "VP9", 7: "HEVC", 8: "AV1", 9: "Unknown codec"}
_OPENACC = {
    1: "Device init",
    2: "Device shutdown",
    3: "Runtime shutdown",
    4: "Enqueue launch",
    5: "Enqueue upload",
    6: "Enqueue download",
    7: "Wait",
    8: "Implicit wait",
    9: "Compute construct",
    10: "Update",
    11: "Enter data",
    12: "Exit data",
    13: "Create",
    14: "Delete",
    15: "Alloc",
    16: "Free",
    17: "Unknown event",
}
_LOCKING = {3: "Waiting to enter", 5: "Leaving", 6: "Inside"}
VALUES = {
    60000001: {3: "Parallel region"},
    60000002: {
        4: "Loop",
        5: "Sections",
        6: "Single",
        7: "Master",
        8: "Single (by another thread)",
        9: "Workshare",
        10: "Distribute",
        11: "Scope",
        12: "Loop (static)",
        13: "Loop (dynamic)",
        14: "Loop (guided)",
        15: "Loop (other schedule)",
        16: "Unknown worksharing",
    },
    60000005: {
        1: "Barrier",
        2: "Implicit barrier",
        3: "Explicit barrier",
        4: "Runtime barrier",
        8: "Implicit worksharing barrier",
        9: "Implicit parallel barrier",
        10: "Implicit teams barrier",
    },
    60000006: _LOCKING,
    60000008: _LOCKING,
    60000009: _LOCKING,
    60000018: {1: "Implicit task", 2: "Initial task"},
    60000022: {1: "Taskwait"},
    60000023: {1: "Explicit task", 2: "Target task", 3: "Unknown task"},
    60000024: {1: "Task created"},
    60000027: {1: "Taskgroup"},
    60000029: {1: "Taskloop"},
    60000033: _LOCKING,
    60000040: {1: "OpenMP thread"},
    60000041: {1: "Reduction"},
    60000042: {
        1: "Barrier",
        2: "Implicit barrier",
        3: "Explicit barrier",
        4: "Runtime barrier",
        5: "Taskwait",
        6: "Taskgroup",
        7: "Reduction",
        8: "Implicit worksharing barrier",
        9: "Implicit parallel barrier",
        10: "Implicit teams barrier",
        11: "Unknown synchronization",
    },
    60000043: {1: "Unknown synchronization"},
    60000044: {
        1: "Task scheduled",
        2: "Cancellation",
        3: "Lock initialised",
        4: "Lock destroyed",
        5: "Work dispatched",
        6: "Flush",
    },
    61000000: {
        1: "pthread_exit",
        2: "pthread_create",
        3: "pthread_join",
        4: "pthread_detach",
        5: "pthread_rwlock_*wrlock",
        6: "pthread_rwlock_*rdlock",
        7: "pthread_rwlock_unlock",
        8: "pthread_mutex_*lock",
        9: "pthread_mutex_unlock",
        10: "pthread_cond_signal",
        11: "pthread_cond_broadcast",
        12: "pthread_cond_*wait",
        13: "pthread_barrier_wait",
        100: "pthread_cancel",
        101: "pthread_kill",
        102: "pthread_once",
        103: "pthread_sigmask",
        104: "pthread_sigqueue",
        105: "pthread_spin_lock",
        106: "pthread_spin_trylock",
        107: "pthread_spin_unlock",
        108: "pthread_yield",
    },
    63000001: {
        3: "Memcpy device to device",
        4: "Memcpy device to host",
        5: "Memcpy host to device",
        6: "Memset",
        7: "Memcpy host to array",
        8: "Memcpy array to host",
        9: "Memcpy array to array",
        10: "Memcpy array to device",
        11: "Memcpy device to array",
        12: "Memcpy host to host",
        13: "Memcpy peer to peer",
        14: "Migration host to device",
        15: "Migration device to host",
        16: "Migration device to device",
        17: "Memcpy, unknown kind",
    },
    63000200: {
        1: "GEMM FP64",
        2: "GEMM FP32",
        3: "GEMM TF32",
        4: "GEMM FP16",
        5: "GEMM BF16",
        6: "GEMM FP8",
        7: "GEMM FP4",
        8: "GEMM integer",
        9: "GEMM other",
        10: "Convolution",
        11: "Attention",
        12: "Normalisation",
        13: "Softmax or loss",
        14: "Elementwise",
        15: "Optimizer",
        16: "Reduction",
        17: "Embedding or index",
        18: "Sort, scan or select",
        19: "Copy, cast or fill",
        20: "FFT",
        21: "Sparse matrix",
        22: "NCCL",
        23: "Communication other",
        24: "Other",
    },
    63000210: _MEMORY_KINDS,
    63000211: _MEMORY_KINDS,
    63000212: {
        1: "Unknown",
        2: "User prefetch",
        3: "Page fault",
        4: "Speculative prefetch",
        5: "Eviction",
        6: "Access counters",
    },
    63000220: {
        1: "Event synchronization",
        2: "Stream waits for event",
        3: "Stream synchronization",
        4: "Context synchronization",
        5: "Unknown",
    },
    63000222: {1: "Recorded"},
    63000240: {1: "Unknown", 2: "Read", 3: "Write", 4: "Atomic", 5: "Prefetch"},
    63000300: {1: "Capturing"},
    63000410: {1: "Wait", 2: "Transfer"},
    63000412: {
        1: "host-bound late launch",
        2: "late predecessor on the stream",
        3: "late dependency on another stream",
        4: "host-bound late call",
        5: "unknown",
    },
    63000413: {
        0: "Nothing recorded",
        1: "Compute only",
        2: "Overlapped transfer",
        3: "Exposed transfer",
        4: "Exposed wait",
        5: "Overlapped wait",
        6: "Memory operation",
        7: "Idle",
        8: "Exposed unclassified communication",
        9: "Overlapped unclassified communication",
        10: "Opaque CUDA graph",
    },
    63000420: {
        1: "Compute",
        2: "Data transfer",
        3: "Unclassified communication",
        4: "Memory operation",
        5: "Launch latency",
        6: "GPU gap",
        7: "CUDA API call",
        8: "OS call",
        9: "CPU code",
        10: "MPI call",
        11: "Wait for an unselected rank",
        12: "Unknown",
        13: "Opaque CUDA graph",
    },
    63000400: {
        0: "Nothing recorded",
        1: "Compute",
        2: "Communication",
        3: "Compute and communication",
        4: "Memory",
        5: "Memory and compute",
        6: "Memory and communication",
        7: "Memory, compute and communication",
        8: "Idle",
        16: "Opaque CUDA graph",
        17: "Opaque CUDA graph and compute",
        18: "Opaque CUDA graph and communication",
        19: "Opaque CUDA graph, compute and communication",
        20: "Opaque CUDA graph and memory",
        21: "Opaque CUDA graph, memory and compute",
        22: "Opaque CUDA graph, memory and communication",
        23: "Opaque CUDA graph, memory, compute and communication",
    },
    66000000: _OPENACC,
    66000001: _OPENACC,
    66000002: _OPENACC,
    66500003: _MEMORY_KINDS,
    **{63000510 + 10 * engine + lane: _CODECS for engine in range(4) for lane in range(8)},
    **{
        number: {int(value): f"MPI_{name}" for value, name in zip(*[iter(text.split())] * 2, strict=True)}
        for number, text in _MPI.items()
    },
}
"""Labels of the fixed values of types in `event_types`, by number of the type."""

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


def list_fixed_types() -> list[EventType]:
    """Return every event type of the module, alone or in a mapping or tuple."""
    types: list[EventType] = []
    for value in vars(event_types).values():
        members = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else (value,)
        types += [member for member in members if isinstance(member, EventType)]
    return types


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


def test_numbers_and_labels_of_types() -> None:
    types = list_fixed_types()
    assert {event_type.number: event_type.title for event_type in types} == TYPES
    assert len(types) == len(TYPES)
    precise = {event_type.number: event_type.precision for event_type in types if event_type.precision}
    assert precise == dict.fromkeys(range(63000440, 63000448), 2)


def test_values() -> None:
    assert {t.number: dict(t.values) for t in list_fixed_types() if t.values} == VALUES


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
    assert families.NVTX_RESERVED == {"": 9600, "NCCL": 9500, "neSmiK": 81000}
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
    assert number_types(*metrics) == {
        "Cycles": 66600017,
        "IB: Bytes sent [bytes/ms]": 9712062,
        "Plugin: load": 9827393,
    }
    assert [metric.precision for metric in metrics] == [0, 0, 6]
