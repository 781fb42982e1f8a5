"""Step-by-step decoding: the trained network's weights in the form that this machine multiplies fastest."""
