"""The agent: what runs on a host of an SSH run, and does there what the controller asks for.

It is this package with the few modules of the harness that it shares, packed into one file and kept
in memory on the host (`harness.ssh.bundle`): nothing is installed and nothing written.  It needs
Linux and Python 3.8 and no more, so here nothing newer is used and nothing but the standard
library.  Annotations may be: the bundle makes them lazy.

::

    main      reads what the controller says about this run, then becomes the chain
    chain     two processes, built so that the kernel cleans up; says which means it found
    rooms     where the processes of one node live
    place     such a room, with the orders to its processes
    clocks    what its processes are lied to about the time
    children  processes that were started here: their pipes and their ends
    cuts      packets that must not come in, by nft, with a time limit in the kernel
    packets   packets that the kernel hands over before they leave
    lines     when and how often they are sent on
    links     which packets those are, by nft
    post      what really gets through between hosts
    disks     the data folders of the nodes
    serve     orders in, answers out, and the lease

The controller writes JSON lines to its standard input and reads JSON lines from its standard
output.  When nothing comes for as long as the lease, or input ends, the agent ends: everything
that it started dies with it, mounts go with it, and rules of nft are deleted.
"""
