"""Archive: the stored versions of a collection, their coverage and horizon."""
