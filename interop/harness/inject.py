"""Reads IP packets from standard input, one per line in hex, and sends them out of the namespace that the script runs
in.

The source address may be any address: raw sockets accept our header unchanged.
"""

import os
import socket
import sys

# The sender stays on one core. If it moved to another, the kernel could let a later packet overtake.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for line in sys.stdin:
    packet = bytes.fromhex(line)
    if packet[0] >> 4 == 4:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as out:
            out.sendto(packet, (socket.inet_ntop(socket.AF_INET, packet[16:20]), 0))
    else:
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW) as out:
            out.setsockopt(socket.IPPROTO_IPV6, 36, 1)  # 36 is IPV6_HDRINCL
            out.sendto(packet, (socket.inet_ntop(socket.AF_INET6, packet[24:40]), 0))
