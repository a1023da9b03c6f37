"""Reads CPU samples: the function that a thread was in, and its callers.

Like time on a core, a sample only observes a thread: it is shown if the thread also made calls.
"""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.records.columns import Pair, make_events
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared import call_chains
from nsys2prv_ng.sources.shared.host_calls import select_sound_intervals
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_name_pair
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

SAMPLES = "COMPOSITE_EVENTS"
TABLE = Table(SAMPLES, ("start", "globalTid"), {"id": NULL})

NO_CHAIN = "(no call chain)"
"""Label for samples without a call chain, because nsys took none or lost it. These samples still count."""


def read(reader: ReportReader) -> Result:
    """Return a point for each sample."""
    columns = reader.columns(SAMPLES)
    result = Result(read=columns.rows)
    time, thread = columns["start"], columns["globalTid"]
    # A sample at time 0 is sound: start and end at 0 mean a missing time only for intervals.
    rows = select_sound_intervals(result, time, np.where(time == 0, 1, time), thread)
    place = reader.places.observed_threads(thread[rows])
    result.records.append(make_events(place, time[rows], _find_functions(reader, columns["id"][rows])))
    return result


def _find_functions(reader: ReportReader, chain: IntArray) -> list[Pair]:
    """Return the function and module of each of n samples, and as many levels of callers as the user chose."""
    chains = call_chains.read_chains(reader, call_chains.SAMPLE_CHAINS)
    pairs = call_chains.find_functions(reader, chains, chain, types.SAMPLED_FUNCTIONS)
    missing = ~chains.find(0, chain)[1]
    if missing.any():
        no_name = np.zeros(chain.size, np.int64)
        pairs.append(make_name_pair(reader.labels, types.SAMPLED_FUNCTIONS[0], no_name, [NO_CHAIN], missing))
    return pairs + call_chains.find_modules(reader, chains, chain, types.SAMPLED_MODULE)


SOURCE = Source(
    source_names.CPU_SAMPLES,
    "CPU samples",
    (TABLE, call_chains.SAMPLE_CHAINS),
    read,
    counted_tables=(EventRows(SAMPLES),),
    noun="samples",
    needed_by=(),
    load=LoadCost(events=0.6, pairs=1),
)
