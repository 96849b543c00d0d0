"""History: versions, and the graph as of a moment."""
