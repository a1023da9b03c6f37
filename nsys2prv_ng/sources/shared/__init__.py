"""Provides the parts of every source: its declaration, its reader and its result."""
