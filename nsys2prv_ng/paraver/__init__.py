"""The Paraver formats: event types, labels, writers, readers and the checker."""
