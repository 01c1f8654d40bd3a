"""The documentation: pages by hand, and a reference that is written from the code."""
