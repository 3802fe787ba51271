"""Search for splits among random directions, and growing trees node by node."""
