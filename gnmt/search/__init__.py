"""Beam search over anything with `encode` and `step`; it knows ids only."""
