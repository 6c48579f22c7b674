"""What people touch: the command line and the demo. Thin; the decisions are made below."""
