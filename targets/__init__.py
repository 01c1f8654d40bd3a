"""Systems under test: lock services, the resources that they protect, or both in one.

One module a system.  A target says which servers to start and makes blocking clients that never
retry; it imports the harness and nothing else of this project.  The client library of a product is
imported only when a client is made: the harness itself forks, and must not carry it.
"""
