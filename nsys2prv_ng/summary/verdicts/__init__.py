"""Says in sentences what limits a job."""
