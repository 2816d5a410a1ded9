"""Storage of a table: commits, state, encoding, encryption, export."""
