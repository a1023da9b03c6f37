"""Source of NCCL: payloads of calls and of the kernels that carry them out, communicators, and messages.

- `calls`: the calls of a report, which are ranges of the NVTX domain NCCL
- `payload`: their payloads, decoded from JSON or bytes
- `kernels`: NCCL's kernels and the calls that each carries out. Its docstring explains how a kernel gets the payloads
of calls
- `payload_events`: payloads of calls and kernels as events, and the data of a report that is joined over all reports
- `purposes`: what the calls of a process on a communicator look like
- `evidence`: in which operations ranks may wait for each other, for clocks and waits
- `communicators`: the communicators of all reports, and what they are for
- `nccl`: the source, which reads one report with the help of the others, and joins all reports: ranks, and messages
from send to receive
"""
