"""Pages of docs/reference: the parts that are made from the code."""
