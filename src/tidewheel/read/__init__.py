"""The read path: plan → scan → materialise → result."""
