"""Training under Lightning: the only room that knows it."""
