"""Ways to route rows to leaves, from which `skforest._tree` chooses."""
