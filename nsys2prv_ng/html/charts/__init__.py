"""Draws charts as SVG and as images, from numbers, names and colours only."""
