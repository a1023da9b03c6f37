"""Evidence for the alignment of clocks in NCCL's sends and receives.

A receive's kernel ends when its data has arrived, a while after the send's kernel has handed it to the network.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsys2prv_ng.operations.parts import RankMessages
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import Metadata
from nsys2prv_ng.sources.nccl.calls import RECEIVING, find_sizes
from nsys2prv_ng.sources.nccl.kernels import NcclKernels


def collect_messages(
    metadata: Metadata, communicators: list[str], table: pd.DataFrame, kernel: NcclKernels, pairs: pd.DataFrame
) -> RankMessages:
    """Return the sends and receives of one report, with the times of their kernels.

    `table` has the calls, `pairs` indices of kernels and of the calls that they carry out. A kernel that carries out
    several of them ends with the last: it does not show when each handed its data over.
    """
    used = table.loc[table["communicator"] >= 0, ["communicator", "process", "rank"]].drop_duplicates()
    processes = [int(process) for process in used["process"].unique()]
    ranks = {process: metadata.find_rank(process, alone=len(processes) == 1) for process in processes}
    is_message = (table["is_message"] & (table["peer"] != NULL) & (table["communicator"] >= 0)).to_numpy(np.bool_)
    shares = pairs["kernel"].duplicated(keep=False).to_numpy(np.bool_)
    of_one_kernel = ~pairs["call"].duplicated(keep=False).to_numpy(np.bool_)
    rows = np.flatnonzero(of_one_kernel & is_message[pairs["call"].to_numpy(np.int64)])
    call, at = table.iloc[pairs["call"].to_numpy(np.int64)[rows]], pairs["kernel"].to_numpy(np.int64)[rows]
    is_send = call["direction"].to_numpy() != RECEIVING
    return RankMessages(
        communicators=communicators,
        sizes=find_sizes(table, len(communicators)),
        uses=[(int(c), int(p), int(rank)) for c, p, rank in used.to_numpy().tolist()],
        job_ranks={process: rank for process, rank in ranks.items() if rank is not None},
        job_size=metadata.job_size,
        communicator=call["communicator"].to_numpy(np.int64),
        process=call["process"].to_numpy(np.int64),
        peer=call["peer"].to_numpy(np.int64),
        is_send=is_send,
        order=call["begin"].to_numpy(np.int64),
        time=np.where(is_send, kernel.begin[at], kernel.end[at]),
        handed=np.where(shares[rows], NULL, kernel.end[at]),
        bytes=call["bytes"].to_numpy(np.int64),
    )
