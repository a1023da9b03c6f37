"""The first numbers that analysts look for, made of the records of a trace without writing one."""
