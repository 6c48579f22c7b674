"""`tidewheel status`: a warehouse on one screen."""
