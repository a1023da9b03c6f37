"""Device memory: what is in use, allocator calls, leaks, copies."""
