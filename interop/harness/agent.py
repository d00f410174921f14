"""Runs inside a namespace: the ends of a file transfer and of a counted UDP flow."""

import hashlib
import os
import signal
import socket
import sys
import time
import zlib


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def send(address, port, size):
    digest, left = hashlib.sha256(), int(size)
    with socket.create_connection((address, int(port)), timeout=10) as connection:
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
                pass  # counted as lost at the far end
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
{"send": send, "receive": receive, "stream": stream, "count": count, "listen": listen}[sys.argv[1]](*sys.argv[2:])
