"""Finds nsys, exports reports and reads the exports."""
