"""Two runs beside each other: which is faster, where, and whether that is real."""
