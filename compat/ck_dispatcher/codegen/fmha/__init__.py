"""Attention: the original's words, its rules for its own targets, and the generator."""
