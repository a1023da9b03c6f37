"""Maps processes, threads, streams, GPUs and nodes to the rows of the trace."""
