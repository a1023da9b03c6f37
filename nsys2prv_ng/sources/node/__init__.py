"""Sources of metrics and messages that belong to a node or a device, not to a process."""
