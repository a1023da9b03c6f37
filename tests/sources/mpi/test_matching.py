"""Matching of sends and receives, compared with runs of a simulated MPI, which knows what met."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.mpi.communicators import UNKNOWN, AllCommunicators, Communicators, Group
from nsys2prv_ng.sources.mpi.matching import ReportMessages, match_messages
from nsys2prv_ng.sources.mpi.messages import ANY_SOURCE, NOBODY, MessageEnds, MpiMessages
from nsys2prv_ng.sources.shared.source import Result
from tests.examples import examples

ANY = None


@dataclass
class Send:
    task: int
    time: int
    communicator: str
    partner: int
    tag: int
    id: int
    """Also its number of bytes, by which it is known again."""


@dataclass
class Receive:
    task: int
    time: int
    communicator: str
    partner: int | None
    tag: int | None
    done: int | None = None
    took: int = 0
    """Id of the send that it met."""
    hidden: bool = False
    """The report does not record its partner and tag."""


@dataclass
class Run:
    tasks: int
    sends: list[Send]
    receives: list[Receive]
    cancelled: bool = False

    @property
    def pairs(self) -> set[tuple[int, int]]:
        """(id of the send, end of the receive) of what met."""
        return {(receive.took, receive.done) for receive in self.receives if receive.took and receive.done is not None}


def simulate(seed: int, tasks: int, length: int, any_source: float, any_tag: float) -> Run:
    """Tasks that post sends and receives at random; messages of one pair of tasks and communicator arrive in order."""
    chance = random.Random(seed)
    run = Run(tasks, [], [])
    on_the_way: dict[tuple[int, int, str], list[Send]] = {}
    arrived: list[Send] = []
    waiting: list[Receive] = []
    time = 0

    def fits(send: Send, receive: Receive) -> bool:
        return (
            send.partner == receive.task
            and send.communicator == receive.communicator
            and receive.partner in (ANY, send.task)
            and receive.tag in (ANY, send.tag)
        )

    def meet(send: Send, receive: Receive) -> None:
        receive.took, receive.done = send.id, time

    def arrive() -> None:
        streams = [stream for stream, queue in on_the_way.items() if queue]
        if not streams:
            return
        send = on_the_way[chance.choice(streams)].pop(0)
        match = next((receive for receive in waiting if fits(send, receive)), None)
        if match is None:
            arrived.append(send)
        else:
            waiting.remove(match)
            meet(send, match)

    def post(receive: Receive) -> None:
        run.receives.append(receive)
        match = next((send for send in arrived if fits(send, receive)), None)
        if match is None:
            waiting.append(receive)
        else:
            arrived.remove(match)
            meet(match, receive)

    for _ in range(length):
        time += 1
        task, partner = chance.randrange(tasks), chance.randrange(tasks)
        communicator, tag = chance.choice(["world", "world copy 1"]), chance.randrange(3)
        action = chance.random()
        if action < 0.35:
            send = Send(task, time, communicator, partner, tag, len(run.sends) + 1)
            run.sends.append(send)
            on_the_way.setdefault((task, partner, communicator), []).append(send)
        elif action < 0.7:
            wanted = ANY if chance.random() < any_source else partner
            post(Receive(task, time, communicator, wanted, ANY if chance.random() < any_tag else tag))
        else:
            arrive()
    while any(on_the_way.values()):
        time += 1
        arrive()
    # Correct programs receive every message before they finalise MPI.
    for send in list(arrived):
        time += 1
        if send in arrived:
            post(Receive(send.partner, time, send.communicator, send.task, send.tag))
    return run


def as_ends(items: list[Send] | list[Receive], keys: list[str], offset: int) -> MessageEnds:
    """Columns of a report of sends or receives, whose clock is behind by `offset`."""

    def column(values: list[int | None]) -> np.ndarray:
        return np.array([NULL if value is None else value for value in values], np.int64)

    place = column([item.task for item in items])
    hidden = [isinstance(item, Receive) and item.hidden for item in items]
    partners = [ANY_SOURCE if item.partner is ANY else item.partner for item in items]
    return MessageEnds(
        place=place,
        posted_at=place,
        process=place,
        time=column([item.time - offset for item in items]),
        done=column([i.done - offset if isinstance(i, Receive) and i.done is not None else None for i in items]),
        completing=column([item.time - offset for item in items]),
        communicator=column([keys.index(item.communicator) for item in items]),
        partner=column([None if hide else partner for hide, partner in zip(hidden, partners, strict=True)]),
        tag=column([None if hide else item.tag for hide, item in zip(hidden, items, strict=True)]),
        bytes=column([item.id if isinstance(item, Send) else 10**6 for item in items]),
    )


def matched(
    run: Run, recorded: set[int], from_init: set[int], to_finalize: set[int]
) -> tuple[set[tuple[int, int]], Result]:
    """(id of the send, end of the receive) of the lines between the recorded tasks, and the account."""
    groups = {
        "world": Group(size=run.tasks, members={rank: rank for rank in recorded}),
        "world copy 1": Group(size=run.tasks, original="world"),
    }
    keys = [UNKNOWN, "world copy 1", "world"]
    communicators = AllCommunicators([Communicators(keys, groups)])
    reports = []
    for task in sorted(recorded):
        offset = 17 * task
        sends = [send for send in run.sends if send.task == task]
        receives = [receive for receive in run.receives if receive.task == task]
        messages = MpiMessages(as_ends(sends, keys, offset), as_ends(receives, keys, offset))
        reports.append(ReportMessages(messages, keys, np.arange(run.tasks), ClockMap(offset)))
    captured = from_init & recorded, to_finalize & recorded
    ranks = {rank: rank for rank in recorded}
    result, _ = match_messages(reports, communicators, np.arange(run.tasks), ranks, *captured)
    (lines,) = result.records
    words = lines.value.reshape(-1, 4)
    sends_by_id = {send.id: send for send in run.sends}
    for time, sender, handles, (send, _, _, size) in zip(
        lines.time, lines.place, lines.handle.reshape(-1, 4), words, strict=True
    ):
        sent = sends_by_id[int(size)]
        assert (time, send, sender) == (sent.time, sent.time, sent.task)
        assert (handles[0], handles[3]) == (sent.partner, sent.tag)
    return {(int(size), int(receive)) for _, receive, _, size in words}, result


runs = st.builds(
    simulate,
    seed=st.integers(0, 10**9),
    tasks=st.integers(1, 4),
    length=st.integers(1, 150),
    any_source=st.sampled_from([0.0, 0.02, 0.2]),
    any_tag=st.sampled_from([0.0, 0.1, 0.5]),
)


@given(runs)
@settings(deadline=None, max_examples=examples(60))
def test_only_what_met_is_matched(run: Run) -> None:
    everyone = set(range(run.tasks))
    pairs, result = matched(run, everyone, everyone, everyone)
    assert pairs <= run.pairs
    assert result.read == len(pairs) + sum(result.dropped.values())
    unmatched_ends = len(run.sends) + len(run.receives) - 2 * len(pairs)
    no_end = result.dropped.get("sent, and the end of its receive was not recorded", 0)
    assert sum(result.dropped.values()) == unmatched_ends - no_end


@pytest.mark.slow
@given(
    st.builds(
        partial(simulate, any_source=0.0),
        st.integers(0, 10**9),
        st.integers(1, 4),
        st.integers(1, 150),
        any_tag=st.sampled_from([0.0, 0.5]),
    )
)
@settings(deadline=None, max_examples=examples(60))
def test_everything_is_matched_without_receives_from_any_source(run: Run) -> None:
    everyone = set(range(run.tasks))
    pairs, _ = matched(run, everyone, everyone, everyone)
    assert pairs == run.pairs


@pytest.mark.slow
@given(runs, st.sets(st.integers(0, 3), max_size=3))
@settings(deadline=None, max_examples=examples(60))
def test_only_what_met_is_matched_where_reports_are_missing(run: Run, missing: set[int]) -> None:
    recorded = set(range(run.tasks)) - missing
    if not recorded:
        return
    pairs, result = matched(run, recorded, recorded, recorded)
    assert pairs <= run.pairs
    assert result.read == len(pairs) + sum(result.dropped.values())


@pytest.mark.slow
@given(runs, st.integers(0, 10**9))
@settings(deadline=None, max_examples=examples(60))
def test_only_what_met_is_matched_where_partners_are_hidden(run: Run, seed: int) -> None:
    """As MPI_Mrecv hides them. Nothing is said of what was received up to MPI_Finalize."""
    chance = random.Random(seed)
    for receive in run.receives:
        receive.hidden = chance.random() < 0.1
    everyone = set(range(run.tasks))
    pairs, _ = matched(run, everyone, everyone, set())
    assert pairs <= run.pairs


def run_of(
    sends: list[tuple[int, int, int]], receives: list[tuple[int, int | None, int | None, int]], tasks: int = 3
) -> Run:
    """A run in which tasks first send (task, partner, tag), then receive (task, partner, tag, id of what it took)."""
    run = Run(tasks, [], [])
    for number, (task, partner, tag) in enumerate(sends, 1):
        run.sends.append(Send(task, number, "world", partner, tag, number))
    for number, (task, source, tag_wanted, took) in enumerate(receives, 100):
        run.receives.append(Receive(task, number, "world", source, tag_wanted, 10 * number if took else None, took))
    return run


def ids(pairs: set[tuple[int, int]]) -> list[int]:
    return sorted(send for send, _ in pairs)


EVERYONE = {0, 1, 2}


def test_a_wildcard_with_one_candidate_is_matched() -> None:
    run = run_of([(0, 1, 5), (2, 1, 6)], [(1, ANY, 5, 1), (1, ANY, 6, 2)])
    pairs, result = matched(run, EVERYONE, EVERYONE, set())
    assert pairs == run.pairs and result.dropped == {}


def test_a_wildcard_with_two_candidates_is_not() -> None:
    """Nor what it may have taken: the receive from 0 after it. The one before it is certain."""
    run = run_of(
        [(0, 1, 5), (0, 1, 5), (0, 1, 5), (2, 1, 5)], [(1, 0, 5, 1), (1, ANY, 5, 2), (1, 0, 5, 3), (1, ANY, 5, 4)]
    )
    pairs, result = matched(run, EVERYONE, EVERYONE, EVERYONE)
    assert ids(pairs) == [1]
    assert result.dropped == {
        "received from any source, with several candidates": 2,
        "may have been taken by a receive with a wildcard": 4,
    }
    assert result.read == 7


def test_a_source_whose_messages_all_are_taken_is_no_candidate() -> None:
    run = run_of([(0, 1, 5), (2, 1, 5)], [(1, ANY, 5, 2), (1, 0, 5, 1)])
    pairs, _ = matched(run, EVERYONE, EVERYONE, set())
    assert pairs == run.pairs


def test_a_rank_without_report_may_be_the_source() -> None:
    """Unless the receiver got no more messages than those with a report sent, until MPI was finalised."""
    run = run_of([(0, 1, 5)], [(1, ANY, 5, 1)])
    pairs, result = matched(run, {0, 1}, {0, 1}, set())
    assert pairs == set()
    assert result.dropped == {
        "received from any source, with several candidates": 1,
        "may have been taken by a receive with a wildcard": 1,
    }
    pairs, _ = matched(run, {0, 1}, {0, 1}, {0, 1})
    assert pairs == run.pairs


def test_unequal_numbers_since_mpi_init() -> None:
    """The last sends were not received yet."""
    run = run_of([(0, 1, 5)] * 3, [(1, 0, 5, 1), (1, 0, 5, 2)])
    pairs, result = matched(run, EVERYONE, EVERYONE, set())
    assert pairs == run.pairs
    assert result.dropped == {"sent, and no receive was recorded": 1}


def test_unequal_numbers_in_a_later_capture_tell_nothing() -> None:
    run = run_of([(0, 1, 5)] * 3 + [(0, 1, 6)], [(1, 0, 5, 2), (1, 0, 5, 3), (1, 0, 6, 4)])
    pairs, result = matched(run, EVERYONE, set(), set())
    assert ids(pairs) == [4]
    assert result.dropped == {"unequal numbers of sends and receives in a capture that began after MPI_Init": 5}


def test_the_first_of_any_tag() -> None:
    run = run_of([(0, 1, 7), (0, 1, 5), (0, 1, 6)], [(1, 0, 5, 2), (1, 0, ANY, 1), (1, 0, ANY, 3)])
    pairs, _ = matched(run, EVERYONE, EVERYONE, set())
    assert pairs == run.pairs


def test_a_receive_that_never_ended_has_no_line() -> None:
    run = run_of([(0, 1, 5)], [(1, 0, 5, 0)])
    pairs, result = matched(run, EVERYONE, EVERYONE, set())
    assert pairs == set()
    assert (result.read, result.dropped) == (1, {"sent, and the end of its receive was not recorded": 1})


def test_a_send_to_itself() -> None:
    run = run_of([(1, 1, 5)], [(1, 1, 5, 1)])
    assert matched(run, EVERYONE, EVERYONE, set())[0] == run.pairs


def test_messages_without_a_partner() -> None:
    run = run_of([(0, 1, 5), (0, NOBODY, 5)], [(1, 0, 5, 1), (1, NOBODY, 5, 0)])
    pairs, result = matched(run, EVERYONE, EVERYONE, set())
    assert pairs == run.pairs
    assert result.dropped == {"to or from MPI_PROC_NULL": 2}


def test_unknown_communicators_and_absent_ranks() -> None:
    run = run_of([(0, 1, 5), (0, 2, 5), (0, 1, 5)], [(1, 0, 5, 1)])
    run.sends[2].communicator = UNKNOWN
    pairs, result = matched(run, {0, 1}, {0, 1}, set())
    assert pairs == run.pairs
    assert result.dropped == {"its partner is a rank without a report": 1, "its communicator is not recorded": 1}


@pytest.mark.slow
@pytest.mark.parametrize("number", [20_000])
def test_many_messages_in_reverse_order_of_tags(number: int) -> None:
    """Each receive looks far from where the one before it looked."""
    run = run_of([(0, 1, number - i) for i in range(number)], [(1, 0, i + 1, number - i) for i in range(number)])
    assert matched(run, EVERYONE, EVERYONE, EVERYONE)[0] == run.pairs
