"""Nodes, tasks, threads, streams and devices: where events happen, and on which Paraver row."""
