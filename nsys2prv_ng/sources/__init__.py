"""Turns columns of a report into records of a trace: one module (a source) for each kind of event.

- `source_names`: the names of the sources
- `registry`: the sources in their order, and their selection by name
"""
