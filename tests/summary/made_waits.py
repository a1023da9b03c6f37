"""Small numbers on waits, for tests of what is printed on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsys2prv_ng.summary.waits.numbers import Culprit, LateCost, MpiWaits, RankWaits, WaitNumbers

MS, S = 10**6, 10**9
NO_RANK = RankWaits(
    rank=0,
    task="rank 0",
    nccl_ns=0,
    wait_ns=0,
    exposed_wait_ns=0,
    transfer_ns=0,
    unsplit_ns=0,
    collectives=160,
    last=0,
    caused_wait_ns=0,
    caused_in_messages_ns=0,
    reason=None,
    longest_wait=None,
    mpi=None,
)
NO_WAITS = WaitNumbers(
    operations=0,
    nccl_collectives=0,
    mpi_collectives=0,
    split=0,
    below_uncertainty=0,
    not_split={},
    reports_without_payload=0,
    ranks=[],
    culprits=[],
    costs=[],
    bandwidth=[],
)
NO_MPI = MpiWaits(
    mpi_ns=9 * MS,
    wait_ns=0,
    transfer_ns=9 * MS,
    unsplit_ns=0,
    collectives=0,
    last=0,
    caused_wait_ns=0,
    caused_in_messages_ns=0,
)
LAUNCH, DEVICE, DEPENDENCY = (
    "host-bound late launch",
    "late predecessor on the stream",
    "late dependency on another stream",
)
"""Labels of the trace."""


def rank_of(number: int, caused: int, last: int = 1, mpi: MpiWaits | None = None) -> RankWaits:
    wait = 5 * MS
    return replace(
        NO_RANK,
        **{"rank": number, "task": f"rank {number}", "nccl_ns": 9 * MS, "wait_ns": wait, "exposed_wait_ns": wait},
        **{"transfer_ns": 4 * MS, "last": last, "caused_wait_ns": caused, "mpi": mpi},
    )


def culprit_of(number: int, reason: str, ns: int, range_: str = "", origin: int | None = None) -> Culprit:
    return Culprit(
        rank=number,
        task=f"rank {number}",
        reason=reason,
        range=range_,
        call="",
        operation="",
        origin_rank=origin,
        origin_task="" if origin is None else f"rank {origin}",
        times=1,
        ns=ns,
    )


def cost_of(number: int, reason: str, ns: int, range_: str = "", call: str = "", operation: str = "") -> LateCost:
    return LateCost(
        rank=number, task=f"rank {number}", reason=reason, range=range_, call=call, operation=operation, ns=ns
    )


def waits_of(
    *ranks: RankWaits, culprits: Sequence[Culprit] = (), costs: Sequence[LateCost] = (), mpi: int = 0
) -> WaitNumbers:
    return replace(
        NO_WAITS,
        **{"operations": 160, "nccl_collectives": 160, "mpi_collectives": mpi, "split": 640, "ranks": list(ranks)},
        **{"culprits": list(culprits), "costs": list(costs)},
    )
