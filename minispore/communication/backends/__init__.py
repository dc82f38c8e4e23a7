"""Transports: how a message gets from one rank to another. threads: inside a process; mpi: between processes."""
