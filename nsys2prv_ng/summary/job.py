"""The summary of a job, for programs and for the text. Times are ns, sizes bytes, both integers.

The fields are the keys of the JSON that `nsys2prv-ng summary --json` prints. Programs rely on them: to change a key, or
its meaning, increase SUMMARY_VERSION.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Literal, Protocol

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.value_tables import BY_NCCL, COMMUNICATION_CLASSES, KERNEL_CLASSES, communicates
from nsys2prv_ng.reading.accounts import SkippedReport
from nsys2prv_ng.replay.numbers import WhatIfNumbers
from nsys2prv_ng.runtime.files import read_input, write_atomically
from nsys2prv_ng.summary.build import build_dataclass
from nsys2prv_ng.summary.efficiency.numbers import EfficiencyNumbers, StepNumbers
from nsys2prv_ng.summary.efficiency.talp import write_talp
from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers, SlowModeNumbers
from nsys2prv_ng.summary.links.numbers import LinkNumbers, PipelineNumbers
from nsys2prv_ng.summary.memory.numbers import MemoryNumbers, MemoryOperationNumbers
from nsys2prv_ng.summary.path.numbers import PathNumbers
from nsys2prv_ng.summary.ranges.numbers import LaunchedInRange, RangeNode, RepeatedRange
from nsys2prv_ng.summary.readbacks.numbers import ReadbackNumbers
from nsys2prv_ng.summary.steps.numbers import SlowStepNumbers
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.summary.verdict import Verdict
from nsys2prv_ng.summary.waits.numbers import MpiNumbers, NcclNumbers, WaitNumbers
from nsys2prv_ng.text.formatting import count_nouns, format_time, format_utc
from nsys2prv_ng.text.grid import Grid
from nsys2prv_ng.text.names import clean_name
from nsys2prv_ng.text.results import Tabular, format_csv
from nsys2prv_ng.value_class import ValueClass


class JobFacts(ValueClass, kw_only=True):
    """What the reports of a job are and contain. All but `graphs` describe all reports, whatever the user chose."""

    nsys_versions: list[str]
    """The versions that exported the reports."""
    schema_versions: list[str]
    programs: list[str]
    """Names of the executables of the tasks, without their folders."""
    sources: dict[str, int]
    """The number of reports with events of a source, by source."""
    graphs: list[str]
    """How CUDA graphs were traced, "by node" and "as a whole"; empty if the chosen reports and time show no graphs."""
    lost_data_messages: int
    """Messages in which nsys reports for certain that data is missing."""
    lacks_ranks: bool
    """Whether some rank of the job has no report."""
    captures: list[str]
    """A fingerprint of each capture: the same for all exports of one."""
    cpus: list[str] = field(default_factory=list)
    """Models of the CPUs of all nodes, with the number of cores; empty in summaries of older versions."""
    scripts: list[str] = field(default_factory=list)
    """File names of the scripts that nsys launched; empty in summaries of older versions."""
    slurm_jobs: list[int] = field(default_factory=list)
    """Numbers of the Slurm jobs; empty in summaries of older versions."""
    begin_utc_ns: int | None = None
    """UTC of the first event of the chosen ranks, whatever time the user chose; None in summaries of older versions."""


SUMMARY_VERSION = 3
_READABLE = 2, SUMMARY_VERSION
"""Versions that can be read: 2 has more keys, which are ignored."""
_SHOWN = 40
"""Most characters of a wrong version that an error shows."""


class CallNumbers(ValueClass, kw_only=True):
    """CUDA API or OS runtime calls of one name, over all ranks. Calls within other calls, MPI's included, are omitted.

    OS runtime calls shorter than the limit for the translation (`osrt_min`) are not read.
    """

    name: str
    source: str
    """"cuda_api" or "os_runtime"."""
    count: int
    total_ns: int
    main_ns: int
    """The part of `total_ns` on main threads. Threads of libraries wait in OS runtime calls while they are idle."""


class StartUp(ValueClass, kw_only=True):
    """The time before the steps that numbers cover, and after them (ns)."""

    before_ns: int
    warmup: int
    """Number of warm-up steps in it."""
    wait_ns: int
    """How long kernels and calls waited for other ranks in the time before, over all ranks."""
    after_ns: int


_OTHER_COMMUNICATION = KERNEL_CLASSES[COMMUNICATION_CLASSES[1]]
PLURALS = {"rank": "ranks", "process": "processes"}
"""Plurals of what counts are per."""


class JobSummary(Tabular, kw_only=True):
    """The summary of a job, as `summarize` returns it and `nsys2prv-ng summary` prints it."""

    reports: int
    nodes: int
    ranks: int
    tasks: int
    start_utc_ns: int
    """UTC of time 0 of the trace."""
    duration_ns: int
    """Length of the trace."""
    windows_ns: list[tuple[int, int]]
    """Start and end of each window that numbers cover, from time 0 of the trace; empty for all time."""
    gpus: list[GpuNumbers]
    ranges: list[RepeatedRange]
    kernels: list[KernelNumbers]
    memory_operations: list[MemoryOperationNumbers]
    nccl: list[NcclNumbers]
    mpi: list[MpiNumbers]
    absent: list[str]
    """What the time that numbers cover, or the chosen part of the reports, does not contain."""
    chosen: list[str] = field(default_factory=list)
    """What the user restricted: time, ranks, GPUs."""
    skipped: list[SkippedReport] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    waits: WaitNumbers | None = None
    """None if no operation is over ranks, and in summaries of older versions."""
    critical_path: PathNumbers | None = None
    """None if the reports show neither calls nor operations, and if nothing is derived."""

    efficiency: EfficiencyNumbers | None = None
    """None if the reports have neither GPUs nor main threads."""
    steps: StepNumbers | None = None
    """None if no steps of the program were found."""
    start_up: StartUp | None = None
    """What the numbers do not cover; None if they cover all time, or the user chose it."""
    facts: JobFacts | None = None
    """None in summaries of older versions."""
    gpu_time_ns: tuple[int, int] | None = None
    """Start of the first and end of the last operation of any GPU, from time 0 of the trace. None without operations,
    and in summaries of older versions."""
    range_tree: list[RangeNode] = field(default_factory=list)
    """GPU time by NVTX range; empty without GPU operations, and in summaries of older versions."""
    calls: list[CallNumbers] = field(default_factory=list)
    """CUDA API and OS runtime calls, the longest time first; empty in summaries of older versions."""
    what_if: WhatIfNumbers | None = None
    """What likely changes would save; None if that cannot be predicted, and in summaries of older versions."""
    launched: list[LaunchedInRange] = field(default_factory=list)
    """Kernels by the range that launched them, the longest time first; empty in summaries of older versions."""
    verdict: Verdict = field(default_factory=Verdict.make_unjudged)
    """Its `is_judged` is false if there was nothing to judge, and in summaries of older versions."""
    slow_modes: SlowModeNumbers | None = None
    """None without steps or kernels, and in summaries of older versions."""
    memory: MemoryNumbers | None = None
    """Device memory; None if the reports do not record it, and in summaries of older versions."""
    slow_steps: SlowStepNumbers | None = None
    """None without slow steps, if numbers cover a chosen time, and in summaries of older versions."""
    readbacks: list[ReadbackNumbers] = field(default_factory=list)
    """Where hosts wait for GPUs, the longest idle time after it first; empty in summaries of older versions."""

    @property
    def links(self) -> LinkNumbers | None:
        """Messages by pair; None without any."""
        return None if self.waits is None else self.waits.links

    @property
    def pipeline(self) -> PipelineNumbers | None:
        """Stages of a pipeline and their bubble; None without a certain one."""
        return None if self.waits is None else self.waits.pipeline

    @property
    def measured_ns(self) -> int:
        """Length of the time that numbers cover."""
        return sum(high - low for low, high in self.windows_ns) or self.duration_ns

    @property
    def step_count(self) -> int:
        """The number of steps that were found; 0 without any."""
        return 0 if self.steps is None else self.steps.count

    @property
    def start_utc(self) -> str:
        """UTC of time 0 of the trace, in ISO 8601."""
        return format_utc(self.start_utc_ns)

    @property
    def begin_utc_ns(self) -> int:
        """UTC of the first event, the same for every choice of time, so that a run keeps its place and file names."""
        known = None if self.facts is None else self.facts.begin_utc_ns
        return self.start_utc_ns if known is None else known

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as `json.dumps` takes them."""
        made = {
            "what_if": None if self.what_if is None else self.what_if.to_fields(),
            "verdict": self.verdict.to_dict(),
        }
        return {"version": SUMMARY_VERSION, "start_utc": self.start_utc, **asdict(self), **made}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> JobSummary:
        """Return the summary from which `to_dict` made these fields. Raises ValueError for anything else."""
        version = fields.get("version")
        if version not in _READABLE:
            raise ValueError(f"not a summary of version {SUMMARY_VERSION} (its version: {str(version)[:_SHOWN]})")
        verdict = fields.get("verdict")
        if verdict is not None and not isinstance(verdict, Mapping):
            raise ValueError("not a summary: its verdict is not an object")
        known = {key: value for key, value in fields.items() if key != "verdict" or value is not None}
        summary = build_dataclass(cls, known)
        if any(row.count < 1 for row in summary._list_counted()):  # it has no mean
            raise ValueError("a row counts nothing")
        if summary.links is not None:
            _check_links(summary.links)
        return summary

    @property
    def users(self) -> tuple[Literal["rank", "process"], int]:
        """What counts are per: ranks, or processes (that use GPUs, if any do) where ranks are not known."""
        processes = {task for gpu in self.gpus for task in gpu.tasks}
        if self.ranks and all(gpu.ranks for gpu in self.gpus if gpu.tasks):
            return "rank", self.ranks
        return "process", max(len(processes) or self.tasks, 1)

    @property
    def other_communication(self) -> dict[str, int]:
        """The time (ns) of each kernel that communicates without NCCL, and of each kind of copies between GPUs."""
        times = [(each.name, each.total_ns) for each in self.kernels if each.kernel_class == _OTHER_COMMUNICATION]
        copies = [each for each in self.memory_operations if communicates(each.operation)]
        times += [(each.operation, each.total_ns) for each in copies]
        return {name: ns for name, ns in sum_by_key(times).items() if ns and not name.endswith(BY_NCCL)}

    @property
    def communication(self) -> str:
        """What the communication on GPUs is called: NCCL, if it is all NCCL's."""
        return "communication" if self.other_communication else "NCCL"

    def _list_counted(self) -> Iterator[_Counted]:
        """Yield all rows with a mean."""
        yield from self.kernels
        yield from self.calls
        yield from self.mpi
        yield from self.memory_operations
        yield from self.readbacks
        yield from (part for copies in self.memory_operations for part in copies.by_memory)
        yield from (task for repeated in self.ranges for task in repeated.tasks)
        if self.slow_modes is not None:
            yield from (kernel for mode in self.slow_modes.modes for kernel in mode.kernels)
        if self.waits is not None:
            yield from self.waits.bandwidth
        yield from [] if self.links is None else self.links.sizes

    def __repr__(self) -> str:
        """Return one line: all numbers are a hundred thousand characters."""
        sizes = {"report": self.reports, "rank": self.ranks, "GPU": len(self.gpus)}
        limit = f", {clean_name(self.verdict.bottleneck)}" if self.verdict.is_judged else ""
        return f"<{type(self).__name__} of {count_nouns(sizes)}, {format_time(self.duration_ns)}{limit}>"

    def _list_lines(self) -> Sequence[tuple[str, str]]:
        return [(line.label, line.text) for line in self.verdict.statements]

    def tabulate(self) -> dict[str, Grid]:
        """Return the tables by name, also those without rows."""
        # What reads a saved summary starts without what tables import.
        from nsys2prv_ng.summary.efficiency.table import tabulate_efficiency
        from nsys2prv_ng.summary.gpus import table as of_gpus
        from nsys2prv_ng.summary.kernels import table as of_kernels
        from nsys2prv_ng.summary.links import table as of_links
        from nsys2prv_ng.summary.memory import table as of_memory
        from nsys2prv_ng.summary.path.table import tabulate_path
        from nsys2prv_ng.summary.ranges import table as of_ranges
        from nsys2prv_ng.summary.readbacks.table import tabulate_readbacks
        from nsys2prv_ng.summary.steps import table as of_steps
        from nsys2prv_ng.summary.waits import table as of_waits

        waits, path, efficiency, memory = self.waits, self.critical_path, self.efficiency, self.memory
        kinds, slow = of_steps.list_kind_tables(self.steps), self.slow_steps
        changes = [] if slow is None else of_steps.list_slow_tables(slow)
        grids = {
            **(dict.fromkeys(("scenarios", "slack")) if self.what_if is None else self.what_if.tabulate()),
            "gpus": of_gpus.tabulate_gpus(self.gpus),
            "gaps": of_gpus.tabulate_gaps(self.gpus),
            "idle_causes": of_gpus.tabulate_causes(self.gpus),
            "samples": of_gpus.tabulate_samples(self.gpus),
            "readbacks": tabulate_readbacks(self.readbacks, self.step_count),
            "waits": waits and of_waits.tabulate_nccl_waits(waits, self.communication),
            "mpi_waits": waits and of_waits.tabulate_mpi_waits(waits),
            "late_reasons": waits and of_waits.tabulate_reasons(waits),
            "excess": waits and of_waits.tabulate_excess(waits, self.measured_ns, self.step_count),
            "bandwidth": waits and of_waits.tabulate_bandwidth(waits.bandwidth),
            "pipeline": self.pipeline and of_links.tabulate_pipeline(self.pipeline),
            "critical_path": path and path.length_ns and tabulate_path(path, has_several=self.tasks > 1),
            "efficiency": efficiency and efficiency.length_ns and tabulate_efficiency(efficiency, self.steps),
            "steps": efficiency and of_steps.tabulate_steps(efficiency.steps),
            "kinds": kinds and kinds[0],
            "kind_parts": kinds and kinds[1],
            "slow_step_parts": changes and changes[0],
            "slow_step_changes": changes and changes[1],
            "ranges": of_ranges.tabulate_ranges(self.ranges),
            "range_tree": of_ranges.tabulate_range_tree(self.range_tree, 0.0),
            "kernels": of_kernels.tabulate_kernels(self.kernels, self.gpus),
            "slow_kernels": self.slow_modes and of_kernels.tabulate_slow_modes(self.slow_modes),
            "memory": memory and of_memory.tabulate_memory(memory, ""),
            "memory_kept": memory and of_memory.tabulate_kept(memory.gpus),
            "copies": of_memory.tabulate_memory_operations(self.memory_operations),
            "mpi": of_waits.tabulate_mpi(self.mpi),
        }
        return {name: grid or Grid(columns=[], rows=[]) for name, grid in grids.items()}

    def save_csv(self, folder: str | Path) -> list[Path]:
        """Write each table that has rows as NAME.csv into a folder, in UTF-8; return the files.

        Each file appears whole or not at all. Raises TranslationError.
        """
        texts = {Path(folder) / f"{name}.csv": format_csv(grid) for name, grid in self.tabulate().items() if grid.rows}
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TranslationError(f"{folder}: cannot be made: {error.strerror}") from None
        for file, text in texts.items():
            write_atomically(file, text)
        return [*texts]

    def save(self, path: str | Path) -> None:
        """Write the numbers as JSON, for `load` and `compare`. In a folder, the file is named by time and capture.

        Raises TranslationError if the file cannot be written.
        """
        file = Path(path)
        if file.is_dir():
            begin = format_utc(self.begin_utc_ns)
            capture = min(self.facts.captures, default="") if self.facts else ""
            file /= f"{begin[:19].replace(':', '')}-{capture}.json"
        write_atomically(file, json.dumps(self.to_dict(), indent=2) + "\n")

    def save_talp(self, folder: str | Path) -> Path:
        """Write the efficiencies for TALP-Pages into a folder; return the file. Raises TranslationError."""
        return write_talp(self.efficiency, self.begin_utc_ns, folder)

    @classmethod
    def load(cls, path: str | Path) -> JobSummary:
        """Read what `save` or `nsys2prv-ng summary --json` wrote. Raises TranslationError for any other file."""
        try:
            fields = json.loads(read_input(path))
            if not isinstance(fields, dict):
                raise ValueError("not a summary")
            return cls.from_dict(fields)
        except OSError as error:
            raise TranslationError(f"{path}: cannot be read: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            what = str(error) if str(error).startswith("not a summary") else "not a summary"
            raise TranslationError(f"{path}: {what}; make it with nsys2prv-ng summary --json") from None


class _Counted(Protocol):
    """A row with the number of what it sums up."""

    @property
    def count(self) -> int: ...


def _check_links(links: LinkNumbers) -> None:
    """Raise ValueError if a slow link names a GPU, rank or node that is not listed."""
    for slow in links.slow:
        listed = links.nodes if slow.are_nodes else links.ends
        if not all(0 <= index < len(listed) for index in (slow.sender, slow.receiver)):
            raise ValueError("a link names what is not listed")
