"""Drives real IKE daemons in network namespaces."""
