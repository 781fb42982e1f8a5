"""The depth study: what depth, shortcuts and normalisation do to gradients and to learning, measured."""
