"""The last row of each key, from the newest leaves on: a leaf whose keys all have later rows is not looked at."""
