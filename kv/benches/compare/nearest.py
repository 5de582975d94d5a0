"""Finds the nearest vector by GET and NumPy, once for each line of standard input. Prints nanoseconds and the index."""

import socket
import sys
import time

import numpy


def read_bulk(connection: socket.socket, memory: bytearray) -> memoryview:
    """The bytes of a bulk string, in `memory`."""
    line, have = bytearray(), memoryview(b"")
    while b"\r\n" not in line:
        received = connection.recv(4096)
        if not received:
            raise SystemExit("the server has closed the connection")
        line += received
    head, _, rest = line.partition(b"\r\n")
    if head[:1] != b"$" or head == b"$-1":
        raise SystemExit(f"the server replied {head!r} to GET")
    length = int(head[1:])
    if length + 2 > len(memory):
        memory.extend(bytes(length + 2 - len(memory)))
    have = memoryview(memory)
    have[: len(rest)] = rest
    at = len(rest)
    while at < length + 2:
        received = connection.recv_into(have[at : length + 2])
        if not received:
            raise SystemExit("the server has closed the connection")
        at += received
    return have[:length]


connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b"*2\r\n$3\r\nGET\r\n$5\r\nquery\r\n")
query = numpy.frombuffer(bytes(read_bulk(connection, bytearray())), dtype=numpy.float32)
# As long as the vectors: 10,000 of 128 values.
memory = bytearray(10_000 * 128 * 4 + 2)
for _ in sys.stdin:
    start = time.perf_counter_ns()
    connection.sendall(b"*2\r\n$3\r\nGET\r\n$7\r\nvectors\r\n")
    vectors = numpy.frombuffer(read_bulk(connection, memory), dtype=numpy.float32).reshape(-1, len(query))
    difference = vectors - query
    index = numpy.einsum("ij,ij->i", difference, difference).argmin()
    print(time.perf_counter_ns() - start, index, flush=True)
