"""Workloads: what the workers do, and how the history is judged; they import only `harness`."""
