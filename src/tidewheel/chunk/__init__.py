"""At rest: the chunk format, its names, writer, reader and cache."""
