"""`tidewheel demo`: a fleet sends messages, Spark carries them into a warehouse, another process queries it, and a screen shows it all."""
