"""The pull request's check: from changed files to the models that they can affect.

Owns: what a change can reach, by a table and by the imports of the tree. Must not know: how a
cell is run or judged. The tree is a stranger's: its files are parsed, never run or imported.
"""
