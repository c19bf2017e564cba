"""What only a GPU can show, at real sizes; and the same at small sizes on a processor, so that the tests work."""
