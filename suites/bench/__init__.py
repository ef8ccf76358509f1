"""Benchmarks: figures with the command that makes them again."""
