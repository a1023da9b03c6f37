"""NCCL: calls, kernels, payload, collectives and messages."""
