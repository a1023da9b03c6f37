"""Who waits for whom and why, and the bandwidth of collectives."""
