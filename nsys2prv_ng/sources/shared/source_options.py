"""Defines the options of single sources."""

from __future__ import annotations

from dataclasses import dataclass

from nsys2prv_ng.value_class import ValueClass


@dataclass(eq=False, repr=False)
class SourceOptions(ValueClass):
    """Options of single sources."""

    nvtx_domains: tuple[str, ...] = ()
    """Names of the NVTX domains to show (* and ? as in file names); empty for all."""
    nvtx_range: str = ""
    """Pattern (* and ?) of the texts of NVTX ranges: the trace is cut to the time of these ranges."""
    demangled_names: bool = False
    """Use the demangled names of kernels, with template arguments, instead of the short names."""

    nccl_channels: bool = False
    """Show operations on GPUs and the proxies of an advanced NCCL trace on rows of their own."""

    osrt_min: int = 10_000
    """Drop OS calls that last less than this (ns); 0 keeps all."""

    stack_depth: int = 1
    """Number of levels of call stacks to show: the function and callers of a sample, the callers of a call."""

    metrics: tuple[str, ...] = ()
    """Patterns (* and ?) of the names of GPU metrics; empty for all."""
    metrics_changes: bool = False
    """Write a GPU metric only if its value differs from the sample before."""
    metrics_limits: bool = False
    """Keep only the first and the last sample of each GPU: they show when it was captured."""
