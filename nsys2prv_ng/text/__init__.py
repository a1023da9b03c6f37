"""Tables, numbers, times and names as people read them."""
