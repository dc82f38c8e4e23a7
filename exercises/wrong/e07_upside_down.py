"""Rejected by test_crossover_by_trying_all_sizes: divides beta by alpha."""
import math


def ring_seconds(p, n, alpha, beta):
    return 2 * (p - 1) * (alpha + n / p * beta)


def tree_seconds(p, n, alpha, beta):
    return 2 * math.ceil(math.log2(p)) * (alpha + n * beta)


def crossover(p, alpha, beta):
    rounds = math.ceil(math.log2(p))
    if p <= 3 or alpha == 0:
        return 0
    return (p - 1 - rounds) * beta / ((rounds - (p - 1) / p) * alpha) if beta else math.inf
