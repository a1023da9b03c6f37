"""Messages between GPUs, ranks and nodes, and the counters of links."""
