"""MPI and UCX: calls, collectives, messages and communicators.

- `mpi`: the source of MPI calls, which reads one report by means of the others
- `nvtx_ranges`: calls of reports before nsys 2023.4, which are ranges of the NVTX domain MPI
- `calls`: what a call does, by its name
- `parameters`: the parameters of calls as events
- `communicators`: what handles mean in one report, and which communicators are the same in all
- `messages`: the sends and receives of one report
- `matching`: all reports together: which sends and receives meet
- `collectives`: collectives and messages as evidence for the alignment of clocks
- `ucx`: the source of UCX calls and transfers
"""
