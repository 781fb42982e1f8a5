"""Search over anything with `encode`, `start` and `step`; it knows ids only."""
