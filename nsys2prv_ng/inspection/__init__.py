"""Finds out what reports contain, without translating them."""
