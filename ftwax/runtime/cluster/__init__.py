"""Runs the nodes of a distributed run on the hosts of a Ray cluster.

Ray says which host each node runs on and accounts for what it takes there. On
each host an actor of Ray's starts the nodes' processes and forwards the ports
of nodes on other hosts.
"""
