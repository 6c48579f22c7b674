"""`tidewheel torture`: an ingest that is killed again and again, and the proof that nothing it acknowledged was lost."""
