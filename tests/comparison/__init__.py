"""Tests of comparison/."""
