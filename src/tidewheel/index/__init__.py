"""In memory: templates, runs and trees, and the version that a query reads."""
