"""Where it runs at scale: pipelines, affected cells, shard merge.

Must not know how a cell is judged.
"""
