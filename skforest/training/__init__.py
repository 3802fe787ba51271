"""Methods: how members of forests are trained, with losses, trials, threads and progress."""
