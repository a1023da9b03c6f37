"""Efficiencies of POP and TALP, and where the time of GPUs goes."""
