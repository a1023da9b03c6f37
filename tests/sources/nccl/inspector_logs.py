"""Small logs of the NCCL Inspector, made by the example in its README and by what its source writes.

No real log was at hand: https://github.com/NVIDIA/nccl/tree/master/plugins/profiler/inspector documents the format.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


def record(
    communicator: int,
    rank: int,
    ranks: int,
    sizes: Sequence[tuple[str, int]],
    *,
    name: str = "unknown",
    host: str = "host",
    pid: int = 77,
    version: str = "v4.0",
) -> list[dict[str, object]]:
    """Return a record for each (call, size); sends and receives have fields of their own."""
    records: list[dict[str, object]] = []
    for number, (call, size) in enumerate(sizes):
        kind = "p2p" if call in ("Send", "Recv") else "coll"
        operation = {kind: call, f"{kind}_sn": number, f"{kind}_msg_size_bytes": size, f"{kind}_exec_time_us": 61}
        operation |= {f"{kind}_timing_source": "kernel_gpu", f"{kind}_algobw_gbs": 2.5, f"{kind}_busbw_gbs": 3.75}
        records.append(
            {
                "header": {
                    "id": f"{communicator:#x}",
                    "comm_name": name,
                    "rank": rank,
                    "n_ranks": ranks,
                    "nnodes": 1,
                },
                "metadata": {
                    "inspector_output_format_version": version,
                    "git_rev": "",
                    "rec_mechanism": "nccl_profiler_interface",
                    "dump_timestamp_us": 1748030377748202,
                    "hostname": host,
                    "pid": pid,
                },
                f"{kind}_perf": operation,
            }
        )
    return records


def write_log(path: Path, *groups: list[dict[str, object]], end: str = "") -> Path:
    """Write a log with a record on each line, and `end` after them. Returns its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(entry, separators=(",", ":")) for group in groups for entry in group]
    path.write_text("".join(f"{line}\n" for line in lines) + end)
    return path.parent
