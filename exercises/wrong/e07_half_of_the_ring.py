"""Rejected by test_price_of_the_ring: forgets the all-gather, half of the ring's steps."""
import math


def ring_seconds(p, n, alpha, beta):
    return (p - 1) * (alpha + n / p * beta)


def tree_seconds(p, n, alpha, beta):
    return 2 * math.ceil(math.log2(p)) * (alpha + n * beta)


def crossover(p, alpha, beta):
    rounds = math.ceil(math.log2(p))
    return max(0, (p - 1 - 2 * rounds) * alpha / (2 * rounds - (p - 1) / p) / beta) if p > 1 and beta else 0
