"""Summarizes a job: its bottleneck, stragglers, efficiencies and tables, as text and as JSON."""
