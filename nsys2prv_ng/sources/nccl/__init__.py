"""Source of NCCL: payloads of calls and of the kernels that carry them out, communicators, and messages.

- `calls`: the calls of a report, which are ranges of the NVTX domain NCCL
- `payload`: their payloads, decoded from JSON or bytes
- `kernels`: NCCL's kernels and the calls that each carries out. Its docstring explains how a kernel gets the payloads
of calls
- `payload_events`: payloads of calls and kernels as events
- `collectives`: collectives and messages as evidence for the alignment of clocks
- `messages`: all reports together: communicators, ranks, and messages from send to receive
- `nccl`: the source, which reads one report with the help of the others
"""
