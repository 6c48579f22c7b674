"""The write path: accept → dispatch → publish → flush."""
