"""Declares the remedies: what to try, when it applies, what a replay changes for it, and the line of TRY with its code.

A remedy needs evidence in the reports. Its section in docs/guides/remedies.md has the code before and after, and what
it saved in programs whose cause is known. GAIN and TRY list remedies in one order, the largest saving first; a bound
counts half.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.repeats import COPIES, EMBEDDING, ONE_HOT, OPTIMIZER, OTHERS, RECURRENT
from nsys2prv_ng.steps.numbered_names import OTHER_WORK
from nsys2prv_ng.summary.answer import host_rules, rules
from nsys2prv_ng.summary.answer import idle_bottlenecks as idle
from nsys2prv_ng.summary.answer.bottleneck import Bottleneck
from nsys2prv_ng.summary.answer.case import CLEAR, COPY_BOUND, HALF, HOST_BOUND, LEAST, NO_READBACKS, Case, is_worth
from nsys2prv_ng.summary.efficiency.numbers import StepKind
from nsys2prv_ng.summary.gpus import host_causes
from nsys2prv_ng.summary.gpus.host_causes import HostCause
from nsys2prv_ng.value_class import ValueClass

_MOST = 3
"""Most remedies of an answer: one line each."""


class Remedy(ValueClass, kw_only=True):
    """Something to try.

    `key`: its section in docs/guides/remedies.md. `clause`: what GAIN says of it, after the time. `hint`: the line of
    TRY, with the code. `against`: fields of Losses with the GPU time that it shortens. `applies`: whether reports show
    what it removes; None if what its changes name is evidence enough: kernels and sequences that only a cause has.

    `changes`: what a replay changes for it, with factors that were measured; () if none can tell. `is_bound`: whether
    it saves at most as much. `measure_idle`: for jobs without such a replay, the idle time of GPUs (ns, over all GPUs)
    that it can remove at most. `cause`: why hosts launch late, if that is what it removes.
    """

    key: str
    clause: str
    hint: str
    against: tuple[str, ...]
    applies: Callable[[Case], bool] | None = None
    changes: tuple[Change, ...] = ()
    is_bound: bool = False
    measure_idle: Callable[[Case], int] | None = None
    cause: HostCause | None = None

    @property
    def is_of_reads(self) -> bool:
        """Whether it is against values that hosts read in steps."""
        return self.key in ("read-backs", "graph-breaks")

    def address(self, bottleneck: Bottleneck) -> bool:
        """Return whether it shortens the GPU time of a class."""
        return any(name in self.against for name in bottleneck.loss)


class Tried(ValueClass):
    """A remedy that applies, and what it saves of a step: as a share, and in ns (None without a replay)."""

    remedy: Remedy
    share: float
    saving_ns: int | None
    is_replayed: bool

    @property
    def weight(self) -> float:
        """What it saves, for the order. What no replay knows counts half, and an ideal host a quarter.

        An ideal host saves what all causes do.
        """
        is_host = self.remedy.changes == (HOST_BOUND,)
        return self.share * (1 if self.is_replayed and not self.remedy.is_bound else HALF) * (HALF if is_host else 1)


_HOST, _COMPUTE, _COPYING = ("host_ns",), ("compute_ns",), ("memory_ns",)
_VALIDATES = re.compile(r"(?i)(?<![a-z])(?:eval|valid)")
"""Names of kinds of steps that validate."""


def _reads_values(case: Case) -> bool:
    """Return whether hosts wait for what they read, and other remedies do not address just that: MPI needs it."""
    is_addressed = bool(case.mpi_calls) or host_rules.copies_to_and_fro(case) or rules.copies_pageable(case)
    is_addressed |= host_causes.SAVING in host_rules.list_host_causes(case)
    return host_rules.measure_idle_by_reads(case) > 0 and not is_addressed


def _remove(cause: HostCause, variant: Bottleneck, key: str, clause: str) -> Remedy:
    """Return the remedy of a variant of host-bound jobs: it removes the cause, and saves its idle time at most."""
    return Remedy(
        key=key,
        clause=clause,
        hint=variant.hint,
        against=_HOST,
        applies=lambda case: host_rules.find_host_cause(case) == cause,
        measure_idle=lambda case: case.host_causes[cause].ns,
        cause=cause,
    )


def _measure_host(case: Case) -> int:
    """Return how long (ns, over all GPUs) GPUs waited for hosts."""
    return 0 if case.losses is None else case.losses.host_ns


def _measure_idle_kind(kind: StepKind | None) -> int:
    """Return how long (ns, over all GPUs) GPUs waited for hosts in the steps of a kind."""
    return 0 if kind is None or kind.losses is None else kind.losses.host_ns


def _measure_copying(case: Case) -> int:
    """Return how long (ns, over all GPUs) GPUs only copied, or waited for hosts that launched copies next."""
    exposed = 0 if case.losses is None else case.losses.memory_ns
    causes = (part for gpu in case.summary.gpus for part in gpu.idle_causes or [])
    return exposed + sum(part.ns for part in causes if part.next.startswith("copy "))


def _find_decode(case: Case) -> StepKind | None:
    """Return the decode steps of a serving engine; None without any, or if these launch graphs."""
    kinds = [] if case.summary.steps is None else case.summary.steps.kinds
    found = next((each for each in kinds if each.context_requests == 0 and each.generation_requests), None)
    losses = None if found is None else found.losses
    return None if losses is None or losses.graph_ns or losses.whole_graph_ns else found


REMEDIES = (
    Remedy(
        key="channels-last",
        clause="with channels_last and BF16",
        hint="model.to(memory_format=torch.channels_last), inputs too, and torch.autocast('cuda', torch.bfloat16)",
        against=_COMPUTE,
        applies=lambda case: rules.trains(case) and not rules.convolves_in_16_bits(case),
        changes=(  # the classes in seg: 15.7 to 6.1 ms, 11.3 to 4.7 ms, and 3.0 to 1.8 ms
            *(Change(what.KERNEL, name, 0.0) for name in ("nchwToNhwc*", "nhwcToNchw*")),
            Change(what.CLASS, "Convolution", 0.4),
            Change(what.CLASS, "Normalisation", 0.4),
            Change(what.CLASS, "Elementwise", 0.6),
        ),
    ),
    Remedy(
        key="channels-last",
        clause="with channels_last",
        hint="model.to(memory_format=torch.channels_last), inputs too",
        against=_COMPUTE,
        applies=rules.convolves_in_16_bits,
        changes=(  # in enhance: batch norm 906 to 199 ms
            *(Change(what.KERNEL, name, 0.0) for name in ("nchwToNhwc*", "nhwcToNchw*")),
            Change(what.KERNEL, "batch_norm_*", 0.22),
        ),
    ),
    Remedy(
        key="autocast",
        clause="with BF16 autocast",
        hint="torch.autocast('cuda', torch.bfloat16) or a trainer's bf16=True; set_float32_matmul_precision('high')",
        against=_COMPUTE,
        applies=rules.trains,
        # Products in accel: 53.2 to 3.7 ms, in cloze 69.3 to 4.7 ms. Casts: 18% and 35% more launches.
        changes=(Change(what.CLASS, "GEMM FP32", 0.07), Change(what.HOST, factor=1.15)),
    ),
    Remedy(
        key="fused-attention",
        clause="with fused attention",
        hint="F.scaled_dot_product_attention(q, k, v) instead of products and softmax (attn_implementation='sdpa')",
        against=_COMPUTE,
        applies=rules.attends_unfused,
        changes=(  # the classes in genome: 5.3 to 2.4 ms with attention, 11.2 to 1.4 ms, and 5.9 to 0.9 ms
            Change(what.CLASS, "Softmax or loss", 0.46),
            Change(what.CLASS, "Copy, cast or fill", 0.12),
            Change(what.CLASS, "Elementwise", 0.16),
        ),
        is_bound=True,
    ),
    Remedy(
        key="weights-in-16-bits",
        clause="with weights in BF16",
        hint="model.to(torch.bfloat16); to train, one torch.autocast around all micro-batches of a step",
        against=_COMPUTE,
        applies=rules.casts_weights,
        changes=(Change(what.CLASS, "Copy, cast or fill", 0.02),),  # in decoder: 333 to 6 ms
    ),
    Remedy(
        key="few-rows",
        clause="with F.embedding for tables of few rows",
        hint="F.embedding(i, table) instead of table[i] for tables of few rows: its gradient adds them up one by one",
        against=_COMPUTE,
        applies=rules.adds_row_by_row,
        changes=(Change(what.KERNEL, "indexing_backward_kernel*", 0.03),),  # in molecules: 1,111 to 28 ms
    ),
    Remedy(
        key="lookup",
        clause="with lookups instead of one-hot vectors",
        hint="F.embedding(i, table) instead of F.one_hot(i) @ table",
        against=_COMPUTE,
        changes=(Change(what.REPEATS, ONE_HOT),),
    ),
    Remedy(
        key="fused-optimizer",
        clause="with a fused optimizer",
        hint="optimizer with fused=True, clip_grad_norm_ with foreach=True, torch._foreach_lerp_ for averages",
        against=_HOST + _COMPUTE,
        changes=(Change(what.REPEATS, OPTIMIZER),),
    ),
    Remedy(
        key="merged-embeddings",
        clause="with one embedding table",
        hint="look all tables up at once: one nn.EmbeddingBag with the rows of all, and an offset for each table",
        against=_HOST + _COMPUTE,
        changes=(Change(what.REPEATS, EMBEDDING),),
    ),
    Remedy(
        key="whole-sequences",
        clause="with cuDNN's recurrent layers",
        hint="nn.LSTM or nn.GRU over the whole sequence instead of a loop over nn.LSTMCell",
        against=_HOST + _COMPUTE,
        changes=(Change(what.REPEATS, RECURRENT),),
    ),
    Remedy(
        key="one-copy",
        clause="with one copy for what is copied in a row",
        hint="pack small arrays into one pinned buffer, copy it with non_blocking=True, and split it on the GPU",
        against=_HOST + _COPYING,
        changes=(Change(what.REPEATS, COPIES),),
    ),
    Remedy(
        key="one-batch",
        clause="with one batch or graph for kernels that repeat",
        hint="process repeated items in one batch; if each needs the one before, a CUDA graph of one repetition",
        against=_HOST + _COMPUTE,
        changes=(Change(what.REPEATS, OTHERS),),
    ),
    Remedy(
        key="no-checkpointing",
        clause="without recomputation",
        hint="if memory allows, model.gradient_checkpointing_disable() (gradient_checkpointing=False)",
        against=_HOST + _COMPUTE,
        changes=(Change(what.RECOMPUTATION),),
    ),
    Remedy(
        key="cuda-graphs",
        clause="with CUDA graphs",
        hint="launch less: CUDA graphs (PyTorch: torch.compile(mode='reduce-overhead')), larger kernels or batches",
        against=_HOST,
        applies=host_rules.launches,
        changes=(HOST_BOUND,),
        is_bound=True,
    ),
    Remedy(
        key="stay-on-device",
        clause="with arrays that stay on the GPU",
        hint="the same arrays go to the GPU and back: keep them there (cuda.to_device, cupy.asarray, .to('cuda'))",
        against=_HOST + _COPYING,
        applies=host_rules.copies_to_and_fro,
        measure_idle=_measure_copying,
    ),
    Remedy(
        key="pinned-copies",
        clause="with pinned memory and copies that overlap",
        hint="cudaMallocHost, cudaMemcpyAsync on a second stream; PyTorch: pin_memory=True, non_blocking=True",
        against=_COPYING,
        applies=lambda case: rules.copies_pageable(case) and not host_rules.copies_to_and_fro(case),
        changes=(COPY_BOUND,),
        is_bound=True,
    ),
    _remove(host_causes.PREPARING, idle.HOST_PREPARES, "data-beside-gpu", "with data prepared beside the GPU"),
    _remove(host_causes.WAITING, idle.HOST_WAITS, "loader-workers", "with faster data loading"),
    _remove(host_causes.STARTING, idle.HOST_STARTS, "persistent-workers", "with processes that stay"),
    _remove(host_causes.SAVING, idle.HOST_SAVES, "async-checkpoints", "with asynchronous checkpoints"),
    Remedy(
        key="no-tuning",
        clause="without algorithms tried for each shape",
        hint="torch.backends.cudnn.benchmark = False where shapes change, or pad them to a few sizes",
        against=_HOST,
        applies=host_rules.tunes,
        measure_idle=lambda case: case.host_causes[host_causes.LOADING].ns,
        cause=host_causes.LOADING,
    ),
    _remove(host_causes.LOADING, idle.HOST_LOADS, "few-shapes", "with kernels built before the loop"),
    Remedy(
        key="cheaper-validation",
        clause="with cheaper validation",
        hint="validate in larger batches, keep metrics on the GPU, or do it less often (limit_val_batches, "
        "val_check_interval, eval_steps)",
        against=_HOST,
        applies=lambda case: case.other_kind is not None and bool(_VALIDATES.search(case.other_kind.name)),
        measure_idle=lambda case: _measure_idle_kind(case.other_kind),
    ),
    Remedy(
        key="cheaper-validation",
        clause="with less work between steps",
        hint="see what runs between steps; validate in larger batches, keep metrics on the GPU, or do it less often",
        against=_HOST,
        applies=lambda case: case.other_kind is not None and case.other_kind.name == OTHER_WORK,
        measure_idle=lambda case: _measure_idle_kind(case.other_kind),
    ),
    Remedy(
        key="decode-graphs",
        clause="with CUDA graphs for decode steps",
        hint="capture decode steps in CUDA graphs, one for each batch size (enforce_eager=False, cuda_graph_config)",
        against=_HOST,
        applies=lambda case: _find_decode(case) is not None,
        measure_idle=lambda case: _measure_idle_kind(_find_decode(case)),
    ),
    Remedy(
        key="gil",
        clause="with fewer waits for Python's lock",
        hint="let fewer threads launch more at once: batch their requests, a process for each, CUDA graphs",
        against=_HOST,
        applies=host_rules.waits_for_gil,
        measure_idle=_measure_host,
        is_bound=True,
    ),
    Remedy(
        key="graph-breaks",
        clause="without graph breaks",
        hint="compile without breaks: fullgraph=True names each (or TORCH_LOGS=graph_breaks); no .item() within",
        against=_HOST,
        applies=host_rules.breaks_graphs,
        measure_idle=_measure_host,
        is_bound=True,
    ),
    Remedy(
        key="read-backs",
        clause="without read-backs",
        hint="keep values on the GPU, read them every k-th step (PyTorch: torch.cuda.set_sync_debug_mode('warn'))",
        against=_HOST,
        applies=_reads_values,
        changes=(NO_READBACKS,),
        measure_idle=host_rules.measure_idle_by_reads,
    ),
    Remedy(  # as in JAX: no change of a replay is that of another thread
        key="read-backs",
        clause="without read-backs",
        hint="keep values on the GPU, read them every k-th step (JAX: add metrics up in the jitted step)",
        against=_HOST,
        applies=lambda case: host_rules.find_small_reads(case) is not None,
        measure_idle=lambda case: case.host_calls["futex"],
    ),
)
"""All remedies."""


def list_proposed() -> list[tuple[Change, ...]]:
    """Return the changes that a replay tries for remedies."""
    return [each.changes for each in REMEDIES if each.changes]


def list_remedies(case: Case, bottleneck: Bottleneck) -> list[Tried]:
    """Return the remedies for which there is evidence, and that save enough: that of the class, then the best first.

    Of slow steps, only causes are known: what shortens all steps is no remedy of these. The first remedy of a cause
    counts.
    """
    known = [each for each in REMEDIES if each.cause is not None or not bottleneck.of_steps]
    found: list[Tried] = []
    for each in known:
        if each.cause is None or each.cause not in {tried.remedy.cause for tried in found}:
            found += [tried for tried in _try(case, each) if tried.share >= LEAST]
    return sorted(found, key=lambda tried: (tried.remedy.key != bottleneck.key, -tried.weight))[:_MOST]


def list_own(tried: list[Tried], bottleneck: Bottleneck) -> list[Tried]:
    """Return the remedies that shorten the GPU time of a class."""
    return [each for each in tried if each.remedy.address(bottleneck)]


def _try(case: Case, remedy: Remedy) -> list[Tried]:
    """Return what a remedy saves; [] if it does not apply, or saves no more than two runs of a program differ by.

    Of the idle time that it may remove, what GPUs were idle for in the time that is judged counts. What causes much of
    it is worth a word even if the steps vary.
    """
    if remedy.applies is not None and not remedy.applies(case):
        return []
    scenario = next((each for each in case.scenarios if each.changes == remedy.changes), None)
    if scenario is not None and scenario.connected:
        is_clear = is_worth(scenario) and (scenario.saving_ns >= CLEAR * case.noise_ns or not remedy.is_bound)
        return [Tried(remedy, scenario.share, scenario.saving_ns, is_replayed=True)] if is_clear else []
    if remedy.measure_idle is None or case.losses is None or not case.gpu_ns or not case.covers_window:
        return []
    most = sum(getattr(case.losses, name) for name in remedy.against)
    share, numbers = min(remedy.measure_idle(case), most) / case.gpu_ns, case.summary.what_if
    if numbers is None:
        return [Tried(remedy, share, None, is_replayed=False)]
    saving_ns = round(share * numbers.step_ns)
    is_clear = remedy.cause is not None or saving_ns >= CLEAR * case.noise_ns
    return [Tried(remedy, share, saving_ns, is_replayed=False)] if is_clear else []
