"""The ends of traffic. They take sockets, which their callers make inside a namespace."""

import hashlib
import mmap
import os
import select
import socket
import struct
import time
import zlib

# A datagram that ends a flow: this number, then how many were sent before.
LAST = 2**64 - 1


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def room(one: socket.socket, size: int) -> None:
    """Asks for a receive buffer of `size`: all of it, or where we are not the machine's root, what the system allows."""
    try:
        one.setsockopt(socket.SOL_SOCKET, 33, size)  # 33 is SO_RCVBUFFORCE
    except PermissionError:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def echo_socket(address):
    one = (socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) if ":" in address
           else socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
    room(one, 1 << 20)
    return one


def ping(echo, address, count, size, interval, timeout):
    """Sends echoes and counts the replies. The system's ping waits for its last reply only twice the round trip time,
    which is too short on a busy machine."""
    version = 6 if ":" in address else 4
    identifier, body = os.urandom(2), os.urandom(size)
    request, reply = (128, 129) if version == 6 else (8, 0)
    seen, sent = set(), 0
    start = time.monotonic()
    end = start + count * interval + timeout
    while len(seen) < count and (now := time.monotonic()) < end:
        if sent < count and now >= start + sent * interval:
            head = bytes([request, 0]), identifier + sent.to_bytes(2, "big") + body
            # The kernel fills in the checksum of ICMPv6.
            checksum = b"\0\0" if version == 6 else internet_checksum(head[0] + b"\0\0" + head[1])
            sent += 1
            try:
                echo.sendto(head[0] + checksum + head[1], (address, 0))
            except OSError:
                pass  # a narrow path or a missing route counts as a lost echo
            continue
        echo.settimeout(max(0.001, (start + sent * interval if sent < count else end) - now))
        try:
            message = echo.recv(70000)
        except OSError:
            continue
        message = message if version == 6 else message[(message[0] & 15) * 4:]
        if message[0] == reply and message[4:6] == identifier and message[8:] == body:
            seen.add(message[6:8])
    return len(seen)


def internet_checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")


def by_way_of(connection, address, via):
    """The packets pass `via` first, by a segment routing header (RFC 8754) or a loose source route (RFC 791 §3.1)."""
    if ":" in address:
        segments = b"".join(socket.inet_pton(socket.AF_INET6, hop) for hop in (address, via))
        connection.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RTHDR, bytes([0, 4, 4, 1, 1, 0, 0, 0]) + segments)
    else:
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([1, 131, 7, 4]) + socket.inet_aton(via))


def send(connection, address, port, size):
    """Sends random bytes and returns their number and digest."""
    digest, left = hashlib.sha256(), size
    connection.settimeout(10)
    connection.connect((address, port))
    while left:
        block = os.urandom(min(left, 65536))
        digest.update(block)
        connection.sendall(block)
        left -= len(block)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    return size, digest.hexdigest()


def receive(server):
    """Takes one connection and returns the number and digest of its bytes."""
    digest, total = hashlib.sha256(), 0
    server.settimeout(15)
    connection, _ = server.accept()
    connection.settimeout(15)
    with connection:
        while block := connection.recv(1 << 18):
            digest.update(block)
            total += len(block)
    return total, digest.hexdigest()


def inject(packets):
    """Sends whole IP packets out of the namespace that this thread is in. Their source address may be any address."""
    four = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    six = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
    six.setsockopt(socket.IPPROTO_IPV6, 36, 1)  # 36 is IPV6_HDRINCL
    # The sender stays on one core. If it moved to another, the kernel could let a later packet overtake.
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with four, six:
            for packet in packets:
                if packet[0] >> 4 == 4:
                    four.sendto(packet, (socket.inet_ntop(socket.AF_INET, packet[16:20]), 0))
                else:
                    six.sendto(packet, (socket.inet_ntop(socket.AF_INET6, packet[24:40]), 0))
    finally:
        os.sched_setaffinity(0, cores)


def stream(control, out, progress: mmap.mmap, address, port, rate, size, seconds):
    """Sends numbered datagrams until something comes on `control`, then the last one. Returns how many."""
    sent, start = 0, time.monotonic()
    asked = select.poll()
    asked.register(control, select.POLLIN)
    while (now := time.monotonic()) - start < seconds:
        if asked.poll(max(0.0, start + sent / rate - now) * 1000):
            break
        if time.monotonic() < start + sent / rate:
            continue
        body = sent.to_bytes(8, "big") + b"\xa5" * (size - 12)
        sent += 1
        try_to_send(out, body, address, port)
        progress[:8] = sent.to_bytes(8, "big")
    try_to_send(out, LAST.to_bytes(8, "big") + sent.to_bytes(8, "big"), address, port)
    return sent


def try_to_send(out, body, address, port):
    try:
        out.sendto(body + zlib.crc32(body).to_bytes(4, "big"), (address, port))
    except OSError:
        pass  # a datagram that cannot be sent counts as lost at the far end


def count(control, inbound, quiet):
    """Counts the datagrams of a flow. Once `control` has said how many were sent, it ends when they and the last one are
    there, or when none has come for `quiet` seconds."""
    seen, duplicates, reordered, corrupt, highest, last = set(), 0, 0, 0, -1, False
    sent = None
    ready = select.poll()
    ready.register(inbound, select.POLLIN)
    ready.register(control, select.POLLIN)
    while True:
        events = ready.poll(None if sent is None else quiet * 1000)
        if not events:
            break
        if sent is None and control in dict(events):
            sent = int.from_bytes(os.read(control, 8), "big")
            ready.unregister(control)
        if inbound.fileno() in dict(events):
            data = inbound.recv(65536)
            if zlib.crc32(data[:-4]).to_bytes(4, "big") != data[-4:]:
                corrupt += 1
                continue
            number = int.from_bytes(data[:8], "big")
            if number == LAST:
                last = True
            else:
                duplicates += number in seen
                reordered += number < highest
                highest = max(highest, number)
                seen.add(number)
        if last and sent is not None and len(seen) >= sent:
            break
    return len(seen), duplicates, reordered, corrupt
