"""MPI and UCX: calls, collectives, messages and communicators."""
