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
from nsys2prv_ng.replay.repeats import EMBEDDING, OPTIMIZER, OTHERS, RECURRENT
from nsys2prv_ng.steps.numbered_names import OTHER_WORK
from nsys2prv_ng.summary.answer import bottlenecks, rules
from nsys2prv_ng.summary.answer.bottleneck import Bottleneck
from nsys2prv_ng.summary.answer.case import COPY_BOUND, HALF, HOST_BOUND, LEAST, NO_READBACKS, Case, is_worth
from nsys2prv_ng.summary.efficiency.numbers import StepKind
from nsys2prv_ng.summary.gpus import host_causes
from nsys2prv_ng.summary.gpus.host_causes import HostCause
from nsys2prv_ng.value_class import ValueClass

_MOST = 3
"""Most remedies of an answer: one line each."""


class Remedy(ValueClass, kw_only=True):
    """Something to try.

    `key`: its section in docs/guides/remedies.md. `title`: what it is, as a noun, for GAIN. `hint`: the line of TRY,
    with the code. `applies`: whether reports show what it removes; None if what its changes name is evidence enough:
    kernels and sequences that only a cause has.

    `changes`: what a replay changes for it, with factors that were measured; () if none can tell. `is_bound`: whether
    it saves at most as much. `measure_idle`: the idle time of GPUs (ns, over all GPUs) that it can remove at most, for
    jobs without a replay of its changes that is measurable.
    """

    key: str
    title: str
    hint: str
    applies: Callable[[Case], bool] | None = None
    changes: tuple[Change, ...] = ()
    is_bound: bool = False
    measure_idle: Callable[[Case], int] | None = None


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


_VALIDATES = re.compile(rf"(?i)eval|valid|{OTHER_WORK}")
"""Names of kinds of steps that validate, or may."""


def _reads_values(case: Case) -> bool:
    """Return whether hosts wait for what they read, and other remedies do not address just that: MPI needs it."""
    is_addressed = bool(case.mpi_calls) or rules.copies_to_and_fro(case) or rules.copies_pageable(case)
    is_addressed |= host_causes.SAVING in rules.list_host_causes(case)
    return rules.measure_idle_by_reads(case) > 0 and not is_addressed


def _against(cause: HostCause, variant: Bottleneck, key: str, title: str) -> Remedy:
    """Return the remedy of a variant of host-bound jobs: it removes the cause, and saves its idle time at most."""
    return Remedy(
        key=key,
        title=title,
        hint=variant.hint,
        applies=lambda case: cause in rules.list_host_causes(case),
        measure_idle=lambda case: case.host_causes[cause].ns,
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
    """Return the decode steps of a serving engine; None without any."""
    kinds = [] if case.summary.steps is None else case.summary.steps.kinds
    return next((each for each in kinds if each.context_requests == 0 and each.generation_requests), None)


REMEDIES = (
    Remedy(
        key="channels-last",
        title="channels_last and BF16",
        hint="model.to(memory_format=torch.channels_last), inputs too, and torch.autocast('cuda', torch.bfloat16)",
        applies=rules.runs_python,
        changes=(  # the classes in seg: 15.7 to 6.1 ms, 11.3 to 4.7 ms, and 3.0 to 1.8 ms
            *(Change(what.KERNEL, name, 0.0) for name in ("nchwToNhwc*", "nhwcToNchw*")),
            Change(what.CLASS, "Convolution", 0.4),
            Change(what.CLASS, "Normalisation", 0.4),
            Change(what.CLASS, "Elementwise", 0.6),
        ),
    ),
    Remedy(
        key="autocast",
        title="BF16 autocast",
        hint="torch.autocast('cuda', torch.bfloat16) or a trainer's bf16=True; set_float32_matmul_precision('high')",
        applies=rules.runs_python,
        # Products in accel: 53.2 to 3.7 ms, in cloze 69.3 to 4.7 ms. Casts: 18% and 35% more launches.
        changes=(Change(what.CLASS, "GEMM FP32", 0.07), Change(what.HOST, factor=1.15)),
    ),
    Remedy(
        key="fused-attention",
        title="fused attention",
        hint="F.scaled_dot_product_attention(q, k, v) instead of products and softmax (attn_implementation='sdpa')",
        applies=rules.attends_unfused,
        changes=(  # the classes in genome: 5.3 to 2.4 ms with attention, 11.2 to 1.4 ms, and 5.9 to 0.9 ms
            Change(what.CLASS, "Softmax or loss", 0.46),
            Change(what.CLASS, "Copy, cast or fill", 0.12),
            Change(what.CLASS, "Elementwise", 0.16),
        ),
        is_bound=True,
    ),
    Remedy(
        key="fused-optimizer",
        title="a fused optimizer",
        hint="optimizer with fused=True, clip_grad_norm_ with foreach=True, torch._foreach_lerp_ for averages",
        changes=(Change(what.REPEATS, OPTIMIZER),),
    ),
    Remedy(
        key="merged-embeddings",
        title="one embedding table",
        hint="look all tables up at once: one nn.EmbeddingBag with the rows of all, and an offset for each table",
        changes=(Change(what.REPEATS, EMBEDDING),),
    ),
    Remedy(
        key="whole-sequences",
        title="cuDNN's recurrent layers",
        hint="nn.LSTM or nn.GRU over the whole sequence instead of a loop over nn.LSTMCell",
        changes=(Change(what.REPEATS, RECURRENT),),
    ),
    Remedy(
        key="one-batch",
        title="one batch or graph for what repeats",
        hint="process repeated items in one batch; if each needs the one before, torch.cuda.graph of one repetition",
        changes=(Change(what.REPEATS, OTHERS),),
    ),
    Remedy(
        key="no-checkpointing",
        title="no recomputation",
        hint="if memory allows, model.gradient_checkpointing_disable() (gradient_checkpointing=False)",
        changes=(Change(what.RECOMPUTATION),),
    ),
    Remedy(
        key="cuda-graphs",
        title="CUDA graphs",
        hint="launch less: CUDA graphs (PyTorch: torch.compile(mode='reduce-overhead')), larger kernels or batches",
        applies=rules.launches,
        changes=(HOST_BOUND,),
        is_bound=True,
    ),
    Remedy(
        key="stay-on-device",
        title="arrays that stay on the GPU",
        hint="the same arrays go to the GPU and back: keep them there (cuda.to_device, cupy.asarray, .to('cuda'))",
        applies=rules.copies_to_and_fro,
        measure_idle=_measure_copying,
    ),
    Remedy(
        key="pinned-copies",
        title="pinned memory and copies that overlap",
        hint="cudaMallocHost, cudaMemcpyAsync on a second stream; PyTorch: pin_memory=True, non_blocking=True",
        applies=lambda case: rules.copies_pageable(case) and not rules.copies_to_and_fro(case),
        changes=(COPY_BOUND,),
        is_bound=True,
    ),
    _against(host_causes.PREPARING, bottlenecks.HOST_PREPARES, "data-beside-gpu", "data prepared beside the GPU"),
    _against(host_causes.WAITING, bottlenecks.HOST_WAITS, "loader-workers", "faster data loading"),
    _against(host_causes.STARTING, bottlenecks.HOST_STARTS, "persistent-workers", "processes that stay"),
    _against(host_causes.SAVING, bottlenecks.HOST_SAVES, "async-checkpoints", "asynchronous checkpoints"),
    _against(host_causes.LOADING, bottlenecks.HOST_LOADS, "few-shapes", "kernels built before"),
    Remedy(
        key="cheaper-validation",
        title="no validation or other work",
        hint="validate in larger batches, keep metrics on the GPU, or do it less often (limit_val_batches, "
        "val_check_interval, eval_steps)",
        applies=lambda case: case.other_kind is not None and bool(_VALIDATES.search(case.other_kind.name)),
        measure_idle=lambda case: _measure_idle_kind(case.other_kind),
    ),
    Remedy(
        key="decode-graphs",
        title="CUDA graphs for decode steps",
        hint="capture decode steps in CUDA graphs, one for each batch size (enforce_eager=False, cuda_graph_config)",
        applies=lambda case: _find_decode(case) is not None,
        measure_idle=lambda case: _measure_idle_kind(_find_decode(case)),
    ),
    Remedy(
        key="gil",
        title="fewer waits for Python's lock",
        hint="let fewer threads launch more at once: batch their requests, a process for each, CUDA graphs",
        applies=rules.waits_for_gil,
        measure_idle=_measure_host,
        is_bound=True,
    ),
    Remedy(
        key="graph-breaks",
        title="no graph breaks",
        hint="compile without breaks: fullgraph=True names each (or TORCH_LOGS=graph_breaks); no .item() within",
        applies=rules.breaks_graphs,
        measure_idle=_measure_host,
        is_bound=True,
    ),
    Remedy(
        key="read-backs",
        title="no read-backs",
        hint="keep values on the GPU, read them every k-th step (PyTorch: torch.cuda.set_sync_debug_mode('warn'))",
        applies=_reads_values,
        changes=(NO_READBACKS,),
        measure_idle=rules.measure_idle_by_reads,
    ),
)
"""All remedies."""


def list_proposed() -> list[tuple[Change, ...]]:
    """Return the changes that a replay tries for remedies."""
    return [each.changes for each in REMEDIES if each.changes]


def list_remedies(case: Case, key: str) -> list[Tried]:
    """Return the remedies for which there is evidence, and that save enough: that of the class, then the best first."""
    found = [tried for each in REMEDIES for tried in _try(case, each) if tried.share >= LEAST]
    return sorted(found, key=lambda tried: (tried.remedy.key != key, -tried.weight))[:_MOST]


def _try(case: Case, remedy: Remedy) -> list[Tried]:
    """Return what a remedy saves; [] if it does not apply, or saves nothing measurable."""
    if remedy.applies is not None and not remedy.applies(case):
        return []
    scenario = next((each for each in case.scenarios if each.changes == remedy.changes), None)
    if scenario is not None and is_worth(scenario):
        return [Tried(remedy, scenario.share, scenario.saving_ns, is_replayed=True)]
    if remedy.measure_idle is None or not case.gpu_ns:
        return []
    share, numbers = remedy.measure_idle(case) / case.gpu_ns, case.summary.what_if
    saving_ns = None if numbers is None else round(share * numbers.step_ns)
    return [Tried(remedy, share, saving_ns, is_replayed=False)]
