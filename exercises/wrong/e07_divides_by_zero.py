"""Rejected by test_few_ranks_and_strange_networks: the formula as it stands, also where it has no meaning."""
import math


def ring_seconds(p, n, alpha, beta):
    return 2 * (p - 1) * (alpha + n / p * beta)


def tree_seconds(p, n, alpha, beta):
    return 2 * math.ceil(math.log2(p)) * (alpha + n * beta)


def crossover(p, alpha, beta):
    rounds = math.ceil(math.log2(p))
    return (p - 1 - rounds) * alpha / ((rounds - (p - 1) / p) * beta)
