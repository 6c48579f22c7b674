"""The commands, one module each: `add` says what can be said on the command line, `run` does it and returns the exit code."""
