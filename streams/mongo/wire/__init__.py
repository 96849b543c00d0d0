"""OP_MSG connections borrowed from the driver."""
