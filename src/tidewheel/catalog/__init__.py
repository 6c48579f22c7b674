"""What is known: the only transactional store. Reader and writer protocols, one SQL implementation, migrations, the write lease."""
