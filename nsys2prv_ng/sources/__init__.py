"""Turns columns of a report into records of a trace: one module (a source) for each kind of event.

`registry` has the sources in their order, and selects them by name.
"""
