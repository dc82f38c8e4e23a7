"""Graphs: what they are (ir), how they come about (trace), and what is done to them until they run.

trace → differentiate → passes → memory → execute; `api` has jit, grad and value_and_grad.
"""
