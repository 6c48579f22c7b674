"""Where streams come from: what a source is called, the records Spark reads from it, and how records become rows."""
