"""E7 · Ring or tree? Predict the crossover.

A message of n bytes takes alpha + n·beta seconds: alpha to get going, beta for each byte. With that, two ways to all-reduce
n bytes on p ranks have a price. Steps in which all ranks send at once cost as much as one message.

    ring: p-1 steps to reduce-scatter, p-1 to all-gather; a message is n/p bytes
    tree: ⌈log₂ p⌉ rounds to reduce to rank 0, as many to broadcast; a message is n bytes

Write what they cost, and below how many bytes the tree is the faster one.

    p: ranks, 1 or more; n: bytes; alpha: seconds a message; beta: seconds a byte (0 or more, may be 0)
    ring_seconds, tree_seconds: a number
    crossover: bytes, a number from 0 on. 0 where the tree is never faster, math.inf where it always is

With p = 4, alpha = 1 and beta = 0.5, 8 bytes cost 12 on the ring and 20 by the tree, and the crossover is at 1.6 bytes.

Graded: both prices against the real algorithms, run on a clock that counts so; the crossover against a search through
all sizes; and one, two and three ranks, and networks without alpha or beta.
"""
import math


def ring_seconds(p, n, alpha, beta):
    """Seconds of a ring's all-reduce of n bytes on p ranks."""
    ### BEGIN SOLUTION
    return 2 * (p - 1) * (alpha + n / p * beta)
    ### END SOLUTION


def tree_seconds(p, n, alpha, beta):
    """Seconds of a tree's all-reduce of n bytes on p ranks."""
    ### BEGIN SOLUTION
    return 2 * math.ceil(math.log2(p)) * (alpha + n * beta)
    ### END SOLUTION


def crossover(p, alpha, beta):
    """Bytes below which the tree is faster than the ring: 0 if it never is, math.inf if it always is."""
    ### BEGIN SOLUTION
    rounds = math.ceil(math.log2(p))
    fewer = p - 1 - rounds                  # messages that the tree saves, one behind the other
    more = rounds - (p - 1) / p             # times n bytes that it sends too many
    if fewer <= 0 or alpha == 0:
        return 0
    return fewer * alpha / (more * beta) if beta else math.inf
    ### END SOLUTION
