"""What Paraver reads: event types, records, .prv/.pcf/.row writers and the checker. Knows nothing of nsys."""
