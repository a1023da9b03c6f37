"""What a user selects within single sources."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceOptions:
    """Options of single sources."""

    nvtx_domains: tuple[str, ...] = ()
    """Names of the NVTX domains to show (* and ? as in file names); empty for all."""
    nvtx_range: str = ""
    """Text (* and ? likewise) of NVTX ranges: the trace is cut to the time of these ranges."""
    demangled_names: bool = False
    """Name kernels by their demangled name, with template arguments, instead of the short one."""

    osrt_min: int = 10_000
    """Drop calls of the operating system that last less than this (ns); 0 keeps all."""

    stack_depth: int = 1
    """Number of levels of call stacks to show: for a sample its function and callers, for a call its callers."""

    metrics: tuple[str, ...] = ()
    """Patterns (* and ?) of the names of GPU metrics; empty for all."""
    metrics_changes: bool = False
    """Write a GPU metric only when its value differs from that of the sample before."""
