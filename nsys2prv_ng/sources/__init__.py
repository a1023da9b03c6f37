"""One module for each kind of event: from columns of a report to records of a trace."""
