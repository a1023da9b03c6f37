"""One module for each kind of event: from columns of a report to records of a trace."""

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.sources import cuda_api, kernels, launch_lines, memory_operations, nvtx
from nsys2prv_ng.sources.base import Source

SOURCES: tuple[Source, ...] = (
    cuda_api.SOURCE,
    kernels.SOURCE,
    memory_operations.SOURCE,
    launch_lines.SOURCE,
    nvtx.SOURCE,
)
"""Every source, in the order in which it is read and reported."""


def choose(names: str | None) -> tuple[Source, ...]:
    """Sources by their names, separated by commas; all of them for None. Raises UsageError for a name that is none."""
    if names is None:
        return SOURCES
    known = {source.name: source for source in SOURCES}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise UsageError(f"--sources {names}: unknown {', '.join(unknown) or 'name'}; known are {', '.join(known)}")
    return tuple(source for source in SOURCES if source.name in wanted)
