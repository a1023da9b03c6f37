"""Steps for tests, made of their spans."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.steps.steps import Steps


def make_steps(
    name: str,
    number: IntArray,
    task: IntArray,
    step: IntArray,
    begin: IntArray,
    end: IntArray,
    *,
    row: IntArray | None = None,
    warmup: int = 0,
) -> Steps:
    """Return steps of hosts: a step of the job reaches from its first start on any task to its last end."""
    start = np.array([begin[step == n].min() for n in range(number.size)], np.int64)
    stop = np.array([end[step == n].max() for n in range(number.size)], np.int64)
    return Steps(
        name=name,
        delimiter="",
        similarity=1.0,
        repeats=1,
        on_gpu=False,
        number=number,
        warmup=warmup,
        start=start,
        stop=stop,
        task=task,
        row=task if row is None else row,
        step=step,
        begin=begin,
        end=end,
        host_begin=begin,
        host_end=end,
        kinds=("",),
        kind=np.zeros(number.size, np.int64),
        batches=np.zeros((number.size, 0), np.int64),
    )
