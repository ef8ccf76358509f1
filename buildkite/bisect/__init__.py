"""Bisect: between which two revisions a finding came or went.

Owns: what a revision's verdict says about one finding, the search over releases, and git's own
search over commits. Must not know: how a cell is run or judged.
"""
