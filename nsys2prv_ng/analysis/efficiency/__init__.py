"""Efficiencies of GPUs and hosts, the windows that they cover, and the steps of a program."""
