"""`tidewheel create`: the definition of a table from a sample, from flags, or from a record descriptor."""
