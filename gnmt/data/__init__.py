"""From files or hub data sets to batches: `bitext` -> `examples` -> `batching` -> `padding`."""
