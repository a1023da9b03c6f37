"""Makes the sections of the page of a comparison."""
