"""Sources of calls and samples of host threads."""
