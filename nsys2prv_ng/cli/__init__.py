"""The command line: the commands, and how the program starts and ends."""
