"""Numbers of a shard that are indices or times are checked when it is read, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.arrays.types import BoolArray, Index, IntArray, OneFor
from nsys2prv_ng.errors import ReportError, TranslationError
from nsys2prv_ng.reading import shards
from nsys2prv_ng.reading.kept_objects import load_kept, write_kept
from nsys2prv_ng.reading.read_reports import load_states, spill_states
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Pair, Records
from nsys2prv_ng.records.folder_store import FolderStore
from nsys2prv_ng.records.runs import load_records, store_records
from nsys2prv_ng.sources.shared.source import StateIntervals
from tests.conftest import SAMPLES
from tests.tiers import cases

ODD = (-2, 2**31 - 1, 2**62)


class Rows(NamedTuple):
    names: list[str]
    sizes: Annotated[list[int], OneFor("names")]
    marks: Annotated[BoolArray, OneFor("names")]
    name: Annotated[IntArray, Index("names")]
    place: Annotated[IntArray, Index("places", least=-1)]
    kind: Annotated[IntArray, Index(3)]
    value: IntArray


@dataclass(frozen=True)
class Outer:
    places: tuple[str, ...]
    tables: list[Rows]


def make_outer(places: int = 4, **changed: Any) -> Outer:
    columns: dict[str, Any] = {
        "names": ["a", "b"],
        "sizes": [5, 6],
        "marks": np.array([True, False]),
        "name": np.array([1, 0, 1]),
        "place": np.array([-1, 3, 0]),
        "kind": np.array([0, 1, 2]),
        "value": np.array([-(2**63), 2**63 - 1, 7]),
    }
    return Outer(tuple("p" * places), [Rows(**columns), Rows(**columns | changed)])


@pytest.mark.parametrize(
    "changed",
    [
        *({"name": np.array([0, wrong, 0])} for wrong in (-1, 2, 2**62)),
        *({"place": np.array([0, 0, wrong])} for wrong in (-2, 4, 2**62)),
        *({"kind": np.array([wrong, 0, 0])} for wrong in (-1, 3)),
        {"value": np.arange(4)},
        {"value": np.arange(3).reshape(3, 1)},
        {"name": np.array([0, 1])},
        {"sizes": [5]},
        {"marks": np.array([True])},
        {"names": ["a"]},
        {"places": 3},
    ],
)
def test_indices_of_what_is_not_there(tmp_path, changed):
    path = tmp_path / "a"
    write_kept(path, make_outer())
    assert load_kept(path, Outer).tables[1].place.tolist() == [-1, 3, 0]
    write_kept(path, make_outer(**changed))
    with pytest.raises(ReportError, match="is damaged"):
        load_kept(path, Outer)


def test_indices_of_what_nothing_has(tmp_path):
    """A table outside of what it refers to is damage, too: nothing would check its indices."""
    write_kept(tmp_path / "a", make_outer().tables[0])
    with pytest.raises(ReportError, match="is damaged"):
        load_kept(tmp_path / "a", Rows)


# ---- shards of real reports ------------------------------------------------------------------------------------------


def list_indices(value: object) -> Iterator[tuple[str, IntArray]]:
    """Yield the columns of indices in an object and all that it contains, each with its class and name."""
    if is_dataclass(value) or hasattr(value, "_fields"):
        names = [each.name for each in fields(value)] if is_dataclass(value) else value._fields
        hints = get_type_hints(type(value), localns={"JobSummary": None}, include_extras=True)
        for name in names:
            item = getattr(value, name)
            is_index = any(isinstance(mark, Index) for mark in getattr(hints[name], "__metadata__", ()))
            if is_index and isinstance(item, np.ndarray) and item.size:
                yield f"{type(value).__name__}.{name}", item
            yield from list_indices(item)
    elif isinstance(value, Mapping):
        yield from (found for item in value.values() for found in list_indices(item))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from (found for item in value for found in list_indices(item))


SHOWN = {
    "ddp-2x2": {"Collectives.communicator", "Collectives.member", "CommunicatorUses.place", "MemoryChanges.kind"},
    "mpi-4": {"Collectives.operation", "Collectives.place", "MessageEnds.communicator", "MpiJoinData.initialised"},
}


@pytest.mark.slow
@pytest.mark.parametrize("sample", cases(SHOWN, push=2))
def test_every_column_of_indices(tmp_path, sample):
    (manifest,) = nsys2prv_ng.shard([SAMPLES / f"{sample}.rank1.sqlite"], tmp_path)
    shard = shards._load(manifest)
    found = list(list_indices(shard))
    assert {name for name, _ in found} >= SHOWN[sample]
    for name, column in found:
        for odd in ODD:
            at, before = column.size // 2, column[column.size // 2]
            column[at] = odd
            write_kept(manifest, shard, shards._OPEN_TYPES)
            with pytest.raises(ReportError, match="is damaged"):
                print(name, shards._load(manifest))
            column[at] = before
    write_kept(manifest, shard, shards._OPEN_TYPES)
    shards._load(manifest)


# ---- records and states ----------------------------------------------------------------------------------------------


def make_records() -> Records:
    """One record of each class: an end, an interval without length, a point, a begin, a state, a communication."""
    place, begin, end = np.array([0, 1]), np.array([10, 20]), np.array([15, 20])
    pairs = [Pair(0, np.array([5, 6]))]
    return rec.concatenate(
        [
            rec.make_intervals(place, begin, end, pairs, [0]),
            rec.make_events(place[:1], begin[:1], [Pair(0, 9)]),
            rec.make_states(place[:1], begin[:1], end[:1], np.array([3])),
            rec.make_communications(place[:1], begin[:1], place[1:], end[1:], 8, 9),
        ]
    ).sorted()


FAR = rec.FARTHEST_TIME
DAMAGE = {
    "time": (0, (-(2**63), -FAR - 1)),
    "time in order": (2, (FAR,)),
    "tie": (slice(None), (-1, 6 << 58, 7)),
    "place": (1, (-1, 2)),
    "kind": (slice(None), (0, 4)),
    "handle": (0, (-1,)),
    "first": (1, (-1, 2**40)),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (_, values) in DAMAGE.items() for value in values])
def test_records_that_no_program_wrote(tmp_path, name, value):
    store = FolderStore(tmp_path, "a")
    records = make_records()
    (run,) = store_records(records, store, on_common_clock=True)
    loaded = load_records(run, store)
    for one, other in zip(loaded.columns, records.columns, strict=True):
        np.testing.assert_array_equal(one, other)
    getattr(records, name.split()[0])[DAMAGE[name][0]] = value
    with pytest.raises(TranslationError, match="are damaged"):
        rec.refuse_damaged(records, 2, "a")


@pytest.mark.parametrize("line_class", [rec.BEGIN, rec.END])
def test_limits_of_intervals_are_times(line_class):
    records = make_records()
    at = np.flatnonzero(records.tie_class == line_class)
    records.time[:] = FAR - 3 if line_class == rec.BEGIN else 3 - FAR
    records.value[:] = records.time[0]
    records.tie[at] = rec.pack_tie(line_class, 3)
    rec.refuse_damaged(records, 2, "a")
    records.tie[at] = rec.pack_tie(line_class, 7)
    with pytest.raises(TranslationError, match="are damaged"):
        rec.refuse_damaged(records, 2, "a")


def test_ends_of_states_and_times_of_communications():
    for kind, word in ((rec.STATE, 0), *((rec.COMMUNICATION, word) for word in range(3))):
        records = make_records()
        at = records.first[:-1][records.kind == kind] + word
        for value in (FAR + 1, -FAR - 1):
            records.value[at] = value
            with pytest.raises(TranslationError, match="are damaged"):
                rec.refuse_damaged(records, 2, "a")


@pytest.mark.parametrize(("column", "value"), [(0, -1), (0, 2), (1, 9), (1, -(2**63)), (2, 2**63 - 1), (3, 99)])
def test_states_that_no_program_wrote(tmp_path, column, value):
    columns = [np.array([1, 0]), np.array([3, 4]), np.array([8, 8]), np.array([3, 5])]
    store = FolderStore(tmp_path, "a")
    np.testing.assert_array_equal(load_states(spill_states([StateIntervals(*columns)], store), 2, store), columns)
    columns[column][1] = value
    stored = spill_states([StateIntervals(*columns)], store)
    with pytest.raises(TranslationError, match="are damaged"):
        load_states(stored, 2, store)
