"""The memory of past nights: an append-only SQLite file, its questions and its page."""
