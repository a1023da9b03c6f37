"""Reads .pcf and .row files and the headers of traces, and collects their problems."""
