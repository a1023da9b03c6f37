"""Checks traces and cfgs by the rules of Paraver's own parser."""
