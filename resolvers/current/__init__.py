"""Current documents."""
