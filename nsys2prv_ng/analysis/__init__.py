"""Analyses the GPUs and ranks of a job: activity, idle gaps, waits, efficiencies and the critical path."""
