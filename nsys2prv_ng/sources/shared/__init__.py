"""What every source is made of: its declaration, its reader and its result."""
