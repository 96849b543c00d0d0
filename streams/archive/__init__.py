"""Archive: the versions of a collection, and what is known of its past."""
