"""Checks traces by the rules of Paraver's own parser."""
