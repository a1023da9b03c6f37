"""Pages for tests, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.pictures.measure import collect_pictures
from nsys2prv_ng.summary.pictures.numbers import Pictures
from nsys2prv_ng.summary.summarize import compute_summary
from tests.conftest import SAMPLES

VOID = {"meta", "img", "br", "link", "input"}
"""Elements without an end."""


class Job(NamedTuple):
    """The numbers and pictures of a job."""

    summary: JobSummary
    pictures: Pictures


@cache
def job_of(name: str) -> Job:
    """The numbers and pictures of a set of the samples."""
    return read_job(sorted(SAMPLES.glob(f"{name}*.sqlite")))


def read_job(reports: Sequence[Path]) -> Job:
    with TemporaryDirectory() as folder, open_job(reports, Path(folder), ReadOptions(), Progress()) as job:
        waits = find_waits(job)
        return Job(compute_summary(job, waits), collect_pictures(job, waits))


def rename(value: Any, change: Callable[[str], str], keep: frozenset[str] = frozenset()) -> Any:
    """A copy of dataclasses with every text changed, but for fields of these names, and for keys that programs set."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [rename(part, change, keep) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{name: rename(part, change, keep) for name, part in parts.items() if name not in keep})
    return value


def repeat_ranks(job: Job, times: int) -> Job:
    """A job of so many times as many ranks, each with the numbers and pictures of a real one."""
    summary, pictures = job
    waits = summary.waits
    assert waits is not None and pictures.step is not None and pictures.pace is not None

    def names(rows: Sequence[str]) -> list[str]:
        return [f"{row}, copy {n}" for n in range(times) for row in rows]

    maps = [
        replace(heat, rows=names(heat.rows), values=np.tile(shrink(heat.values, times), (times, 1)))
        for heat in pictures.heat_maps
    ]
    step, pace = pictures.step, pictures.pace
    big = replace(
        pictures,
        heat_maps=maps,
        step=replace(step, rows=names(step.rows), values=np.tile(step.values[:, :: max(1, times // 4)], (times, 1))),
        pace=replace(
            pace,
            tasks=names(pace.tasks),
            ns=np.tile(pace.ns, (times, 1)),
            **{name: np.tile(getattr(pace, name), times) for name in ("median_ns", "least_ns", "most_ns")},
        ),
    )
    ranks = [replace(rank, task=f"{rank.task} {n}") for n in range(times) for rank in waits.ranks]
    many = replace(summary, gpus=summary.gpus * times, waits=replace(waits, ranks=ranks), ranks=summary.ranks * times)
    return Job(many, big)


def shrink(values: np.ndarray, times: int) -> np.ndarray:
    """Fewer columns, as a job of so many times as many rows has."""
    return values[:, :: max(1, times // 26)]


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str]


class Page(HTMLParser):
    """The elements, identifiers, links and tables of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.open: list[str] = []
        self.faults: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.texts: list[str] = []
        self._cell: list[str] | None = None
        self.feed(text)
        self.close()
        self.faults += [f"{tag} has no end" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = []
        if tag not in VOID and tag != "path":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "path" or tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> ends nothing")
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append(" ".join("".join(self._cell).split()))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def structure(self) -> list[tuple[str, tuple[str, ...]]]:
        """Tags with the names of their attributes, in order."""
        return [(element.tag, tuple(sorted(element.attributes))) for element in self.elements]
