"""The Docker backend: each node is a holder container, and the containers that join it.

The holder owns the address, the data volume and the process space of its node, and carries out
orders that come over its standard input; nothing but the engine's socket is needed.  Whoever loses
the harness cleans up: the holder by itself, a reaper process beside the harness for the rest.
"""
