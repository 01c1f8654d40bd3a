"""Reports: what a run found, for a person (HTML, terminal) and for other tools (JUnit).

A report is a pure function of the evidence and the results: no clock, no network, no randomness, so
the same run gives the same bytes.  Whatever came from a system under test is text and stays text.
"""
