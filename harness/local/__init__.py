"""The local backend: every server and worker is a process in a network namespace of its own.

All of it lives in one sandbox (pid, mount, network, ipc and uts namespaces; as an ordinary user
also a user namespace) that the kernel removes whole, with everything in it, when any process of
the harness dies.  Nothing is bind-mounted and no interface of the machine is touched.
"""
