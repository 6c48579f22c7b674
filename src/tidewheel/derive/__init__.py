"""What follows from what: what a derived table's definition says about times, keys and repeatability. Pure: values in, decisions out."""
