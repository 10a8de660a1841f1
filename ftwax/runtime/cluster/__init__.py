"""Runs the nodes of a distributed run on the hosts of a Ray cluster.

Ray places each node on a host and accounts for its resources there. On each
host, a Ray actor starts the processes of nodes and forwards the ports of nodes
on other hosts.
"""
