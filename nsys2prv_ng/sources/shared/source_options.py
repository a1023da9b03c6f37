"""Defines the options of single sources."""

from __future__ import annotations

from nsys2prv_ng.value_class import ValueClass


class SourceOptions(ValueClass):
    """Options of single sources.

    `nvtx_domains`: names of the NVTX domains to show (* and ? as in file names); empty for all. `nvtx_range`: pattern
    (* and ?) of the texts of NVTX ranges: the trace is cut to the time of these ranges. `demangled_names`: use the
    demangled names of kernels, with template arguments, instead of the short names. `nccl_channels`: show operations on
    GPUs and the proxies of an advanced NCCL trace on rows of their own. `osrt_min`: drop OS calls that last less than
    this (ns); 0 keeps all. `stack_depth`: number of levels of call stacks to show: the function and callers of a
    sample, the callers of a call. `metrics`: patterns (* and ?) of the names of GPU metrics; empty for all.
    `metrics_changes`: write a GPU metric only if its value differs from the sample before. `metrics_limits`: keep only
    the first and the last sample of each GPU: they show when it was captured.
    """

    nvtx_domains: tuple[str, ...] = ()
    nvtx_range: str = ""
    demangled_names: bool = False
    nccl_channels: bool = False
    osrt_min: int = 10_000
    stack_depth: int = 1
    metrics: tuple[str, ...] = ()
    metrics_changes: bool = False
    metrics_limits: bool = False
