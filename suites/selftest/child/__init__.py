"""Tests that need torch: they run in the children's Python (see test_child.py)."""
