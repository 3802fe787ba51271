"""From tables to training sets: frames, matrices, the map of features, weighted rows."""
