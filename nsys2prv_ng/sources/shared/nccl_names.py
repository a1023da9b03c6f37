"""Names of the ranges of NCCL's calls.

Those of NVIDIA's advanced NCCL trace (nsys 2025.6.1 and later, `-t nccl` or `--nccl-trace`) replace the ranges that
NCCL makes itself. The user guide of Nsight Systems ("NVIDIA NCCL Trace") documents the names, their nesting on host
threads, the NVTX domain and the names of the threads of proxies.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_MOVING = "AllReduce AllGather ReduceScatter Reduce Broadcast Bcast AlltoAll Gather Scatter"
COLLECTIVES = frozenset(f"nccl{name}" for name in _MOVING.split())
SEND, RECEIVE = "ncclSend", "ncclRecv"
CALLS = COLLECTIVES | {SEND, RECEIVE, "ncclPutSignal", "ncclSignal", "ncclWaitSignal"}
"""Calls with a payload in every version of NCCL that writes payloads."""

API_GROUP = "API Group"
"""Encloses all calls of a group. A call outside groups has a group of its own."""
STRUCTURE = (API_GROUP, "GroupLaunch", "GroupRuntime", "KernelLaunch", "CE Sync", "CE Batch")
"""Ranges around calls, around what NCCL schedules, and around the launches of kernels."""
ADVANCED_CALLS = {name.removeprefix("nccl"): name for name in sorted(CALLS)}
"""NCCL's name of each call in the advanced trace, which omits the prefix. The runtime and GPUs use the names too."""
_OTHERS = frozenset(("CommInit", "ProxyStepSend", "ProxyStepRecv"))
DOCUMENTED = frozenset((*STRUCTURE, *ADVANCED_CALLS)) | _OTHERS
PROXY_THREAD = re.compile(r"NCCL Progress \[[0-9]{1,9}/[0-9]{1,9}\]: (0x)?[0-9a-fA-F]{1,20}")
"""Name of the thread that shows the proxy of a communicator."""


def is_nccl_domain(names: Collection[str]) -> bool:
    """Return whether all ranges of a domain without a name have names of NCCL, of the old or the advanced trace."""
    return all(name.startswith("nccl") for name in names) or (API_GROUP in names and DOCUMENTED.issuperset(names))
