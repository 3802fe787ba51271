"""Shapley values of any response, by permutations: the rows between two rows are predicted."""

import numpy as np

from .._kernels.base.rows import random_stream
from ..training.threads import in_parallel

BLOCK = 1 << 22  # numbers of an array of mixtures of rows that exist at a time


def explain_mixtures(parts, game, shape, seed, n_pairs, n_jobs, has_pairs=False):
    """Values of a sum of models of any kind, from permutations, and their variances.

    For each pair of a row and a background row, the rows between the two are predicted along a
    permutation of the players, in which one player after the other is taken from the first row.
    Players without influence have value 0.
    """
    n_samples, n_inputs, n_background = shape
    players = np.unique(np.concatenate([part.players for part in parts]))
    n_players = len(players)
    size = max(1, BLOCK // (2 * n_pairs * (n_players + 1) * _n_columns(parts)))

    def explain(i, control):
        random = random_stream(seed, 1 + i)
        total = np.zeros((2, n_players if has_pairs else 1, n_players, game.n_outputs))
        for start in range(0, n_background, size):
            rows = slice(start, min(start + size, n_background))
            # Orders of random numbers: a RandomState permutes one row at a time.
            drawn = random.uniform(size=(rows.stop - start, n_pairs, n_players))
            forward = np.argsort(drawn, axis=2)
            # (rows, pairs, 2, n_players): each permutation, and its reverse.
            order = np.stack([forward, forward[..., ::-1]], axis=2)
            for j in range(total.shape[1]):
                if has_pairs:
                    change = _changes(parts, game, i, rows, players, order, (j, True))
                    never = _changes(parts, game, i, rows, players, order, (j, False))
                    change = (change - never) / 2
                else:
                    change = _changes(parts, game, i, rows, players, order)
                of_pair = change.mean(axis=2)
                total[0, j] += of_pair.mean(axis=1).sum(axis=0)
                total[1, j] += (of_pair.var(axis=1, ddof=1) / n_pairs).sum(axis=0)
        return total / np.array([n_background, n_background**2])[:, None, None, None]

    done = np.zeros((2, n_samples, n_inputs if has_pairs else 1, n_inputs, game.n_outputs))
    if n_players:
        found = in_parallel(explain, range(n_samples), n_jobs)
        first = players if has_pairs else [0]
        done[np.ix_(range(2), range(n_samples), first, players)] = np.swapaxes(found, 0, 1)
    return done


def _changes(parts, game, i, rows, players, order, fixed=None):
    """Change of the response by each player along permutations, from background rows to row i.

    A `fixed` player is always taken from row i, or never: a pair of its place in `players` and a
    bool. Returns an array of shape (n_rows, n_pairs, 2, n_players, n_outputs).
    """
    n_players = order.shape[-1]
    rank = np.argsort(order, axis=-1)[..., None, :]
    size = max(1, BLOCK // (order.size // n_players * _n_columns(parts)))
    responses = []
    for start in range(0, n_players + 1, size):
        step = np.arange(start, min(start + size, n_players + 1))
        is_taken = rank < step[:, None]  # (n_rows, n_pairs, 2, n_steps, n_players)
        if fixed is not None:
            is_taken[..., fixed[0]] = fixed[1]
        mixtures = ((part, part.mixture(i, rows, is_taken, players)) for part in parts)
        responses.append(game.respond(mixtures).reshape(*is_taken.shape[:-1], game.n_outputs))
    change = np.empty((*order.shape, game.n_outputs))
    gains = np.diff(np.concatenate(responses, axis=-2), axis=-2)
    np.put_along_axis(change, order[..., None], gains, axis=-2)
    return change


def _n_columns(parts):
    """Largest number of columns that a model reads."""
    return max(part.n_columns for part in parts)
