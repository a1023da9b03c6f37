"""GPUs: what they do at each time, their metrics, and what the host did while they were idle."""
