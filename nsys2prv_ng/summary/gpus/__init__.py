"""What each GPU does, and its gaps."""
