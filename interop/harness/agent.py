"""Runs inside a namespace: sends echoes, and is an end of a file transfer or of a counted UDP flow."""

import hashlib
import os
import signal
import socket
import struct
import sys
import time
import zlib


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def ping(address, source, count, size, interval, timeout):
    """Sends echoes. The system's ping waits for its last reply only twice the round trip time, which is too short on
    a busy machine."""
    count, interval, version = int(count), float(interval), 6 if ":" in address else 4
    identifier, body = os.urandom(2), os.urandom(int(size))
    request, reply = (128, 129) if version == 6 else (8, 0)
    kind = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if version == 6 else (socket.AF_INET, socket.IPPROTO_ICMP)
    seen, sent = set(), 0
    with socket.socket(kind[0], socket.SOCK_RAW, kind[1]) as echo:
        echo.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        if source:
            echo.bind((source, 0))
        start = time.monotonic()
        end = start + count * interval + float(timeout)
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
    print(len(seen))


def internet_checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")


def connect(address, port, via):
    """Connects. With `via` the packets pass that address first, in a segment routing header (RFC 8754) or a loose
    source route (RFC 791 §3.1)."""
    connection = socket.socket(family(address), socket.SOCK_STREAM)
    connection.settimeout(10)
    if via and ":" in address:
        segments = b"".join(socket.inet_pton(socket.AF_INET6, hop) for hop in (address, via))
        connection.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RTHDR, bytes([0, 4, 4, 1, 1, 0, 0, 0]) + segments)
    elif via:
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([1, 131, 7, 4]) + socket.inet_aton(via))
    connection.connect((address, int(port)))
    return connection


def send(address, port, size, via=None):
    digest, left = hashlib.sha256(), int(size)
    with connect(address, port, via) as connection:
        while left:
            block = os.urandom(min(left, 65536))
            digest.update(block)
            connection.sendall(block)
            left -= len(block)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    print(size, digest.hexdigest())


def receive(address, port):
    digest, total = hashlib.sha256(), 0
    with socket.create_server((address, int(port)), family=family(address)) as server:
        server.settimeout(15)
        print("ready", flush=True)
        connection, _ = server.accept()
        connection.settimeout(15)
        with connection:
            while block := connection.recv(1 << 18):
                digest.update(block)
                total += len(block)
    print(total, digest.hexdigest())


class Stop(Exception):
    pass


def stop(*_):
    raise Stop


def stream(address, port, rate, size, seconds):
    rate, size, sent = int(rate), int(size), 0
    with socket.socket(family(address), socket.SOCK_DGRAM) as out:
        running = True

        def end(*_):
            nonlocal running
            running = False

        signal.signal(signal.SIGINT, end)
        print("ready", flush=True)
        start = time.monotonic()
        while running and time.monotonic() - start < float(seconds):
            body = sent.to_bytes(8, "big") + b"\xa5" * (size - 12)
            sent += 1
            try:
                out.sendto(body + zlib.crc32(body).to_bytes(4, "big"), (address, int(port)))
            except OSError:
                pass  # a datagram that cannot be sent counts as lost at the far end
            time.sleep(max(0.0, start + sent / rate - time.monotonic()))
    print(sent)


def listen(address, port):
    with socket.socket(family(address), socket.SOCK_DGRAM) as inbound:
        inbound.bind((address, int(port)))
        print("ready", flush=True)
        try:
            while True:
                print(inbound.recv(65536).hex(), flush=True)
        except Stop:
            pass


def count(address, port):
    seen, duplicates, reordered, corrupt, highest = set(), 0, 0, 0, -1
    with socket.socket(family(address), socket.SOCK_DGRAM) as inbound:
        inbound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        inbound.bind((address, int(port)))
        print("ready", flush=True)
        try:
            while True:
                data = inbound.recv(65536)
                if zlib.crc32(data[:-4]).to_bytes(4, "big") != data[-4:]:
                    corrupt += 1
                    continue
                number = int.from_bytes(data[:8], "big")
                duplicates += number in seen
                reordered += number < highest
                highest = max(highest, number)
                seen.add(number)
        except Stop:
            pass
    print(len(seen), duplicates, reordered, corrupt)


signal.signal(signal.SIGINT, stop)
{"send": send, "receive": receive, "stream": stream, "count": count, "listen": listen,
 "ping": ping}[sys.argv[1]](*sys.argv[2:])
