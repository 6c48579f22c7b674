"""`tidewheel sql`: statements from a terminal, a file or the command line, and their answers on a screen, in a pipe or in a file."""
