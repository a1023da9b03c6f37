"""Kinds of steps by what their ranges say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from nsys2prv_ng.arrays.groups import make_objects
from nsys2prv_ng.steps.kinds import OTHER, Batch, _limit, cut_numbers, name_kinds, read_batch
from nsys2prv_ng.steps.range_periods import name_family

BATCHES = {
    # vLLM, annotate_profile: plain and detailed
    "execute_context_3(12)_generation_5(5)": Batch("mixed", 3, 12, 5, 5),
    "execute_context_0(0)_generation_5(7)": Batch("decode", 0, 0, 5, 7),
    "execute_5_context_1(sq4sk4sqsq16sqsk16)_generation_1(sq1sk11sqsq1sqsk11)": Batch("mixed", 1, 4, 1, 1),
    "execute_2048_context_1(sq2048sk2048sqsq9sqsk9)_generation_0(sq0sk0sqsq0sqsk0)": Batch("prefill", 1, 2048, 0, 0),
    # TensorRT-LLM, _forward_step: of three versions
    "[Executor] _forward_step 12: 3 ctx reqs, 512 ctx tokens, 5 gen reqs": Batch("mixed", 3, 512, 5, -1),
    "[Executor] _forward_step 7: 2 ctx reqs, 0 gen reqs": Batch("prefill", 2, -1, 0, 0),
    "[Executor] _forward_step: 0 ctx reqs, 16 gen reqs": Batch("decode", 0, -1, 16, -1),
    "[Executor] _forward_step 9: 0 ctx reqs, 0 ctx tokens, 0 gen reqs": Batch("idle", 0, 0, 0, 0),
    # SGLang, build_step_span_name: plain and detailed
    "step[DECODE bs=2]": Batch("decode", 0, 0, 2, 2),
    "step[DECODE bs=2 g_sq=8 g_sqsq=32 g_sqsk=120 g_sk=30]": Batch("decode", 0, 0, 2, 8),
    "step[EXTEND bs=1 toks=8192]": Batch("prefill", 1, 8192, 0, 0),
    "step[EXTEND bs=2 toks=12 c_sq=12 c_sqsq=80 c_sqsk=120 c_sk=20]": Batch("prefill", 2, 12, 0, 0),
    "step[TARGET_VERIFY bs=2]": Batch("decode", 0, 0, 2, -1),
    "step[MIXED bs=2]": Batch("mixed", -1, -1, -1, -1),
    "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]": Batch(
        "mixed", 1, 5, 1, 1
    ),
}


@pytest.mark.parametrize("text", BATCHES)
def test_the_marker_of_an_engine_has_its_batch(text: str) -> None:
    assert read_batch(text) == BATCHES[text]


@pytest.mark.parametrize(
    "text",
    [
        *("step 3", "step[NEW bs=1]", "execute_new_1_cached_2", "[Executor] _forward_step 3", "execute_context_1(x"),
        *(f"step[DECODE bs={10**20}]", f"execute_context_0(0)_generation_4({10**20})"),
    ],
)
def test_other_texts_have_no_batch(text: str) -> None:
    assert read_batch(text) is None


def test_the_batches_of_an_engine_are_one_family_of_ranges() -> None:
    for engine in ("execute_c", "[Executor] _forward_step 1", "step["):
        assert len({name_family(text) for text in BATCHES if text.startswith(engine)}) == 1
    assert name_family("step[NEW bs=1]") == "step[NEW bs=*]"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("train {n}", "train"),
        ("eval 12", "eval"),
        ("train_step_{n}", "train_step"),
        ("step={n}, loss=*", "step={n}, loss"),
        ("step=3, loss=1.5e-05", "step={n}, loss"),
        ("epoch 2 validation", "epoch {n} validation"),
        ("other work", "other work"),
        ("12", "12"),
    ],
)
def test_numbers_do_not_tell_kinds(text: str, name: str) -> None:
    assert cut_numbers(text) == name


def name_steps(*tasks: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """Return the name of each step's kind and its batch, for what each task says in each step."""
    steps = len(tasks[0])
    task, step = np.repeat(np.arange(len(tasks)), steps), np.tile(np.arange(steps), len(tasks))
    texts = make_objects(text for of_task in tasks for text in of_task)
    names, kind, batches = name_kinds(texts, task, step, steps)
    return [names[number] for number in kind.tolist()], batches.tolist()


def test_texts_that_differ_in_more_than_numbers_are_kinds() -> None:
    texts = ["train 1", "train 2", "eval 3", "train 4", "eval 5"]
    kinds = ["train", "train", "eval", "train", "eval"]
    assert name_steps(texts) == name_steps(texts, texts) == (kinds, [[]] * 5)


def test_one_text_is_one_kind_without_a_name() -> None:
    assert name_steps(["train {n}"] * 4) == ([""] * 4, [[]] * 4)


def test_a_step_that_tasks_call_by_several_names_has_all_of_them() -> None:
    names, _ = name_steps(["actor 1", "actor 2", "actor 3", "actor 4"], ["critic 1", "idle", "critic 3", "critic 4"])
    assert names == ["actor and critic", "actor", "actor and critic", "actor and critic"]


def test_too_many_names_tell_nothing() -> None:
    assert name_steps(["a", "b", "c", "c"]) == ([""] * 4, [[]] * 4)


PREFILL, DECODE = "execute_context_1(512)_generation_0(0)", "execute_context_0(0)_generation_4(4)"


def test_tensor_parallel_tasks_share_a_batch() -> None:
    texts = [PREFILL, DECODE, DECODE, DECODE]
    kinds = ["prefill", "decode", "decode", "decode"]
    assert name_steps(texts, texts) == (kinds, [[1, 512, 0, 0], *[[0, 0, 4, 4]] * 3])


def test_batches_of_data_parallel_tasks_add_up() -> None:
    other = [DECODE, DECODE, "execute_context_0(0)_generation_0(0)", DECODE]
    kinds, batches = name_steps([PREFILL, DECODE, DECODE, DECODE], other)
    assert kinds == ["mixed", "decode", "decode", "decode"]
    assert batches == [[1, 512, 4, 4], [0, 0, 8, 8], [0, 0, 4, 4], [0, 0, 8, 8]]


def test_what_a_marker_lacks_stays_unknown() -> None:
    text = "[Executor] _forward_step {}: 0 ctx reqs, {} gen reqs"
    _, batches = name_steps([text.format(n, 2) for n in range(4)], [text.format(n, 3) for n in range(4)])
    assert batches == [[0, -1, 5, -1]] * 4


def test_work_between_steps_is_a_kind_beside_those_of_an_engine() -> None:
    assert name_steps([PREFILL, DECODE, "other work", DECODE, DECODE, DECODE])[0][2] == "other work"


def test_rare_kinds_become_one() -> None:
    kind = np.array([0] * 9 + [1] * 8 + [2] * 7 + [3] * 6 + [4] * 5 + [5] * 4)[::-1].copy()
    names, limited = _limit(list("abcdef"), kind)
    assert names == ("a", "b", "c", "d", OTHER)
    assert limited.tolist() == np.minimum(kind, 4).tolist()


def test_the_most_frequent_kind_comes_first() -> None:
    names, kind = _limit(["x", "y", "z"], np.array([0, 2, 2, 1, 1]))
    assert (names, kind.tolist()) == (("z", "y", "x"), [2, 0, 0, 1, 1])
