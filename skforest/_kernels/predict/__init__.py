"""Ways from rows to leaves that `skforest._tree` chooses from."""
