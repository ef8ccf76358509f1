"""Scores: what answers to questions mean. `docs/scores.md` teaches the statistics used here."""
