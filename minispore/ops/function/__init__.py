"""Functional forms of the ops, by what they are about; `ops.functional` gathers them."""
