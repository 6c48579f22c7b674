"""The outside world: files and clock. The only door through which the engine touches either."""
