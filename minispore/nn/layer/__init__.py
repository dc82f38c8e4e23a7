"""Layers, by what they do, under MindSpore's module names; `minispore.nn` gathers them."""
