"""The waist: what can be asked of a warehouse, and the engine of a process that owns one."""
