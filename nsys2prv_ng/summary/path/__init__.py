"""The critical path."""
