"""Turns columns of a report into records of a trace: a source for each kind of event, those of one topic in a module.

`registry` has the sources in their order, and selects them by name.
"""
