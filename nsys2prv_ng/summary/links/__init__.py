"""Messages between GPUs, ranks and nodes, pipelines that they make, and the counters of links."""
