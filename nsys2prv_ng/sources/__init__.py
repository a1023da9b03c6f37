"""Sources of events: one module for each kind, from columns of a report to records of a trace.

- `source_names`: the names of the sources
- `registry`: the sources in their order, and their selection by name
"""
