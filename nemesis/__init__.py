"""The kinds of fault, one file a family.

A fault says what must be true of some nodes, makes it true through the abilities of the nodes, and
proves it with a probe that does not use the mechanism it checks.
"""
