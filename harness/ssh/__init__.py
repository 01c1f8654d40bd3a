"""Hosts over SSH: the backend for real machines.

::

    inventory  which hosts there are, and how each proves that it is the one
    connect    one SSH connection a host, to a host key that was given beforehand
    bundle     the agent as one file
    agent/     what runs on the host, and does there what is asked for
    link       orders to an agent and its answers, with a heartbeat and a deadline
    child      a process on a host, seen from here
    clocks     the clocks of a node's processes, seen from here
    folder     the data folder of a node, seen from here
    node       a node: a server or a worker with all its processes
    hosting    which nodes have a host of their own
    network    cuts between hosts
    links      bad links between hosts
    proxies    what stands between workers and servers, seen from here; `between` runs there
    passage    what gets through
    lab        all hosts of a run

Two leases watch each other.  The agent ends, and everything that it started with it, when it has
not heard of the controller for some seconds; rules that stop packets have a time limit in the
host's kernel.  The controller gives a host up when it has not heard of it for as long: a host that
is cut off or frozen is no process that ended, and is reported as lost.
"""
