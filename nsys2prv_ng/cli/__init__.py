"""The command line: one module per command, and how the program starts and ends."""
