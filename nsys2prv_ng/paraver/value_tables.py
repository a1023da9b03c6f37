"""Defines the labels of fixed values of event types. A number never changes its meaning; new values get new numbers."""

# BasicAnalysis reads the values 3-6; the other kinds follow in the order of CUPTI's own numbers.
MEMORY_OPERATIONS = {
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
}


# CUPTI's causes of migrations and kinds of access plus one, so that 0 stays free.
MIGRATION_CAUSES = {
    1: "Unknown",
    2: "User prefetch",
    3: "Page fault",
    4: "Speculative prefetch",
    5: "Eviction",
    6: "Access counters",
}
ACCESSES = {1: "Unknown", 2: "Read", 3: "Write", 4: "Atomic", 5: "Prefetch"}


# CUPTI's memory kinds plus one, so that 0 stays free: in Paraver 0 reads as "nothing".
MEMORY_KINDS = {
    1: "Pageable",
    2: "Pinned",
    3: "Device",
    4: "Array",
    5: "Managed",
    6: "Device static",
    7: "Managed static",
    8: "Unknown",
}


# sources/cuda/kernel_classes.py finds the class of a kernel from its name.
KERNEL_CLASSES = {
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
}


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
    1: "Barrier",
    2: "Implicit barrier",
    3: "Explicit barrier",
    4: "Runtime barrier",
    8: "Implicit worksharing barrier",
    9: "Implicit parallel barrier",
    10: "Implicit teams barrier",
}


WORKSHARING = {
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
}


PTHREAD_CALLS = {
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
}
HANDS_OVER = ("pthread_cond_*wait", "pthread_join", "sem_wait", "sem_timedwait", "sem_clockwait")
"""Labels of the OS runtime calls in which a thread waits for another thread of its process."""


# CUPTI's kinds of OpenACC events; its 0 (invalid) is 17 here.
OPENACC_UNKNOWN = 17
OPENACC_KINDS = {
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
    OPENACC_UNKNOWN: "Unknown event",
}


# ENUM_VIDEO_ENGINE_TYPE, and ENUM_VIDEO_ENGINE_CODEC plus one, so that 0 stays free.
VIDEO_ENGINES = {0: "Video decoder engine", 1: "Video encoder engine", 2: "JPEG engine", 3: "Optical flow engine"}
VIDEO_CODEC_UNKNOWN = 9
VIDEO_CODECS = {
    1: "MPEG-2",
    2: "VC-1",
    3: "H.264",
    4: "MPEG-4",
    5: "VP8",
    6: "VP9",
    7: "HEVC",
    8: "AV1",
    VIDEO_CODEC_UNKNOWN: "Unknown codec",
}
