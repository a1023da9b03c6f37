"""Sources of MPI and UCX: calls, collectives, messages and communicators.

- `mpi`: the source of MPI calls with their parameters, which reads one report with the help of the others
- `nvtx_ranges`: calls of reports before nsys 2023.4, which are ranges of the NVTX domain MPI
- `communicators`: the meaning of handles in one report, and the communicators of all reports
- `messages`: the role of a call by its name, the sends and receives of one report, and the evidence of these and of
collectives for the alignment of clocks
- `matching`: the sends and receives of all reports that meet
- `ucx`: the source of UCX calls and transfers
"""
