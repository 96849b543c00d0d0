"""MongoDB's change stream: options, decoding, routing, ring buffer."""
