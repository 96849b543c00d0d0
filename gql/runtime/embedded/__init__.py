"""MongoDB that the gateway starts itself."""
