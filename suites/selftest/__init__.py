"""Tests of GraphGate itself, with the corpus of recorded evidence."""
