"""Rejected by test_price_of_the_tree: rounds the logarithm down, which shows on 3 ranks and not on 2, 4 or 8."""
import math


def ring_seconds(p, n, alpha, beta):
    return 2 * (p - 1) * (alpha + n / p * beta)


def tree_seconds(p, n, alpha, beta):
    return 2 * int(math.log2(p)) * (alpha + n * beta)


def crossover(p, alpha, beta):
    rounds = int(math.log2(p))
    if p <= 3 or alpha == 0:
        return 0
    return (p - 1 - rounds) * alpha / ((rounds - (p - 1) / p) * beta) if beta else math.inf
