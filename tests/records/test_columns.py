"""Records against brute force: order, taking, clipping, merging, and their text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng.paraver.encode import RowNumbers, encode, write_number
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.clip import clip_to_windows
from nsys2prv_ng.records.columns import Pair
from tests.examples import examples

ROWS = RowNumbers(np.arange(1, 5), np.array([1, 1, 2, 2]), np.array([1, 2, 1, 2]))
ENDS, POINTS, BEGINS = range(3)


def ints(values):
    return np.array(values, np.int64)


def lines(records, origin=0):
    return bytes(encode(records, np.arange(len(records)), ROWS, origin)).decode().splitlines()


def nested(draw_lengths):
    """Properly nested intervals (begin, end) of one row from a list of numbers, by a stack machine."""
    time, open_, made = 0, [], []
    for step in draw_lengths:
        time += step % 3
        if step % 2 and open_:
            index, begin = open_.pop()
            made.append((index, begin, time))
        else:
            open_.append((len(open_) + len(made), time))
    while open_:
        index, begin = open_.pop()
        made.append((index, begin, time))
    made.sort()
    return [(begin, end) for _, begin, end in made]


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.lists(st.integers(0, 11), max_size=30), min_size=1, max_size=4))
def test_sorted_intervals_replay_as_a_stack(rows):
    """When the lines are replayed, every end closes the top of its row's stack: nesting survives every tie."""
    place, begin, end, value = [], [], [], []
    for row, steps in enumerate(rows):
        for low, high in nested(steps):
            place.append(row)
            begin.append(low)
            end.append(high)
            value.append(len(value) + 1)
    records = rec.make_intervals(ints(place), ints(begin), ints(end), [Pair(7, ints(value))], [7]).sorted()
    stacks = {row: [] for row in range(4)}
    replayed = {}
    last = -1
    for i in range(len(records)):
        time, row = int(records.time[i]), int(records.place[i])
        assert time >= last
        last = time
        for j in range(records.first[i], records.first[i + 1]):
            number = int(records.value[j])
            if number:
                stacks[row].append((number, time))
            else:
                opened, since = stacks[row].pop()
                replayed[opened] = (row, since, time)
    assert not any(stacks.values())
    assert replayed == {v: (p, b, e) for v, p, b, e in zip(value, place, begin, end, strict=True)}


def some_records(seed, n, span=1000):
    """n intervals, states, points and communications at random times."""
    random = np.random.default_rng(seed)
    begin = random.integers(0, span, n)
    end = begin + random.integers(0, 50, n)
    place = random.integers(0, 4, n)
    return rec.concatenate(
        [
            rec.make_intervals(
                place, begin, end, [Pair(5, random.integers(1, 9, n)), Pair(6, begin, begin % 3 == 0)], [5]
            ),
            rec.make_events(place, random.integers(0, span, n), [Pair(8, random.integers(-5, 5, n))]),
            rec.make_states(place, begin, end, random.integers(1, 4, n)),
            rec.make_communications(place, begin, (place + 1) % 4, end, random.integers(0, 99, n), 55001),
        ]
    )


def test_lines_in_another_order_are_those_of_records_in_that_order():
    records = some_records(7, 50)
    every = lines(records)
    order = np.random.default_rng(0).permutation(len(records)).astype(np.int64)
    assert lines(records.take(order)) == [every[i] for i in order]
    for part in (order, order[10:60], order[:0]):
        assert bytes(encode(records, part, ROWS, 0)).decode().splitlines() == [every[i] for i in part]


def test_text_of_each_kind():
    interval = rec.make_intervals(
        ints([3]), ints([10]), ints([25]), [Pair(63000006, ints([4])), Pair(9101, -7)], [63000006]
    )
    empty = rec.make_intervals(ints([0]), ints([12]), ints([12]), [Pair(63000006, ints([4]))], [63000006])
    state = rec.make_states(ints([1, 1]), ints([10, 20]), ints([20, 20]), ints([13, 1]))
    line = rec.make_communications(ints([0]), ints([11]), ints([2]), ints([15]), ints([4096]), 55002)
    records = rec.concatenate([interval, empty, state, line]).sorted()
    assert lines(records, origin=10) == [
        "2:4:1:2:2:0:63000006:4:9101:-7",
        "1:2:1:1:2:0:10:13",
        "3:1:1:1:1:1:1:3:1:2:1:5:5:4096:55002",
        "2:1:1:1:1:2:63000006:4:63000006:0",
        "2:4:1:2:2:15:63000006:0",
    ]


def test_shift_moves_every_time():
    records = some_records(5, 30).sorted()
    expected = lines(records)
    rec.shift_times(records, 10**15)
    assert lines(records, origin=10**15) == expected


def replay(records):
    """Intervals (row, type, value, begin, end), points, states and lines, read from the text."""
    stacks, intervals, points, states, communications = {}, [], [], [], []
    for line in lines(records):
        kind, *fields = map(int, line.split(":"))
        if kind == 1:
            states.append((fields[0], fields[4], fields[5], fields[6]))
        elif kind == 3:
            communications.append((fields[0], fields[4], fields[6], fields[10], fields[12]))
        else:
            for kind_, value in zip(fields[5::2], fields[6::2], strict=True):
                stack = stacks.setdefault((fields[0], kind_), [])
                if kind_ != 5:
                    points.append((fields[0], kind_, value, fields[4]))
                elif value:
                    stack.append((value, fields[4]))
                else:
                    opened, since = stack.pop()
                    intervals.append((fields[0], opened, since, fields[4]))
    return sorted(intervals), sorted(points), sorted(states), sorted(communications)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 10**6), st.integers(-5, 110), st.integers(1, 60))
def test_clip_against_brute_force(seed, low, width):
    high = low + width
    random = np.random.default_rng(seed)
    n = 25
    begin = np.arange(n) * 4 + random.integers(0, 2, n)  # intervals of a row follow each other
    end = begin + random.integers(0, 3, n)
    place = np.zeros(n, np.int64)
    when = random.integers(0, 100, n)
    receive = begin + random.integers(-9, 10, n)
    whole = rec.concatenate(
        [
            rec.make_intervals(place, begin, end, [Pair(5, np.arange(1, n + 1))], [5]),
            rec.make_events(place, when, [Pair(8, np.arange(n))]),
            rec.make_states(place, begin, end, np.full(n, 3)),
            rec.make_communications(place, begin, place, receive, 0, 1),
        ]
    )

    def cut(a, b):
        return max(a, low), min(b, high)

    clipped, _ = clip_to_windows(whole, [(low, high)])
    intervals, points, states, communications = replay(clipped.sorted())
    assert intervals == sorted(
        (1, i + 1, *cut(b, e))
        for i, (b, e) in enumerate(zip(begin.tolist(), end.tolist(), strict=True))
        if (b < high and e > low if e > b else low <= b <= high)
    )
    assert points == sorted((1, 8, i, t) for i, t in enumerate(when.tolist()) if low <= t <= high)
    assert states == sorted(
        (1, *cut(b, e), 3) for b, e in zip(begin.tolist(), end.tolist(), strict=True) if e > b and b < high and e > low
    )
    assert communications == sorted(
        (1, min(max(b, low), high), 1, min(max(r, low), high), 0)
        for b, r in zip(begin.tolist(), receive.tolist(), strict=True)
        if max(b, r) >= low and min(b, r) <= high
    )


@settings(max_examples=examples(500), deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_digits_of_every_int64(number):
    buffer = np.zeros(32, np.uint8)
    assert bytes(buffer[: write_number(buffer, 0, number)]).decode() == str(number)


@pytest.mark.parametrize("power", range(19))
def test_digits_at_powers_of_ten(power):
    buffer = np.zeros(32, np.uint8)
    for number in (10**power - 1, 10**power, -(10**power)):
        assert bytes(buffer[: write_number(buffer, 0, number)]).decode() == str(number)


INT64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 18).flatmap(lambda power: st.integers(-(10**power) - 1, 10**power + 1)),
)
HANDLE = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(0, 600))
LINE = st.one_of(
    st.tuples(st.just(rec.EVENT), st.integers(0, 3), INT64, st.lists(st.tuples(HANDLE, INT64), max_size=4)),
    st.tuples(st.just(rec.STATE), st.integers(0, 3), INT64, st.lists(st.tuples(HANDLE, INT64), min_size=1, max_size=1)),
    st.tuples(
        st.just(rec.COMMUNICATION),
        st.integers(0, 3),
        INT64,
        st.tuples(st.tuples(st.integers(0, 3), INT64), *[st.tuples(HANDLE, INT64)] * 3),
    ),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(LINE, max_size=30), st.lists(st.integers(1, 10**6), min_size=12, max_size=12))
def test_text_against_a_formatter_of_lines(given_lines, numbers):
    """Every byte, whatever the numbers, is what Python writes."""
    rows = np.array(numbers).reshape(4, 3)

    def object_(row):
        return f"{rows[row, 0]}:1:{rows[row, 1]}:{rows[row, 2]}"

    expected = ""
    for kind, row, time, words in given_lines:
        fields = [kind, object_(row), time]
        if kind == rec.EVENT:
            fields += [number for word in words for number in word]
        elif kind == rec.STATE:
            fields += [words[0][1], words[0][0]]
        else:
            receiver, send = words[0]
            fields += [send, object_(receiver), words[1][1], words[2][1], words[3][1], words[3][0]]
        expected += ":".join(map(str, fields)) + "\n"
    words = [word for line in given_lines for word in line[3]]
    records = rec.Records(
        ints([line[2] for line in given_lines]),
        np.zeros(len(given_lines), np.int64),
        np.array([line[1] for line in given_lines], np.int32),
        np.array([line[0] for line in given_lines], np.int8),
        np.cumsum([0, *(len(line[3]) for line in given_lines)]),
        np.array([word[0] for word in words], np.int32),
        ints([word[1] for word in words]),
    )
    text = encode(records, np.arange(len(records)), RowNumbers(*np.ascontiguousarray(rows.T)), 0)
    assert bytes(text).decode() == expected


def test_longest_lines_fit_the_buffer():
    """All fields at their widest: the buffer's bound per line and word must hold."""
    wide = RowNumbers(*(np.array([65534], np.int64) for _ in range(3)))
    least = np.iinfo(np.int64).min
    records = rec.concatenate(
        [
            rec.make_events(ints([0]), ints([least + 1]), [Pair(2**31 - 1, least)] * 3),
            rec.make_communications(
                ints([0]), ints([least + 1]), ints([0]), ints([least + 1]), ints([least]), 2**31 - 1
            ),
        ]
    )
    text = bytes(encode(records, np.arange(2), wide, 0)).decode()
    assert text.count("\n") == 2
    assert text.splitlines()[1].endswith(f":{least}:{2**31 - 1}")


def test_an_interval_that_no_trace_can_hold_is_still_one():
    """An interval between two damaged times: its lines still have the classes of begin and end."""
    begin, end = np.array([-(2**61), 0], np.int64), np.array([2**61, 5], np.int64)
    records = rec.make_intervals(np.zeros(2, np.int64), begin, end, [rec.Pair(0, 1)], [0])
    assert rec.count_events(records) == 2
    assert sorted(records.tie_class.tolist()) == sorted([rec.BEGIN, rec.END] * 2)
