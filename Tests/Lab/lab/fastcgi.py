"""FastCGI records as bytes, including invalid ones, and a client of a gateway's socket.

Multiplexing and management records are not supported, because nginx uses neither.
"""

import re
import socket
import struct

BEGIN_REQUEST, ABORT_REQUEST, END_REQUEST, PARAMS, STDIN, STDOUT, STDERR = range(1, 8)
KEEP_CONNECTION = 1

REASONS = {100: "Continue", 103: "Early Hints", 104: "Upload Resumption Supported",
           200: "OK", 201: "Created", 204: "No Content", 413: "Content Too Large"}


def record(kind, content=b"", padding=0, request=1, version=1):
    head = struct.pack("!BBHHBB", version, kind, request, len(content), padding, 0)
    return head + content + b"\xa5" * padding


def records(kind, content, size=65535, padding=0):
    """`content` in records of at most `size` bytes each."""
    return b"".join(record(kind, content[at:at + size], padding)
                    for at in range(0, len(content), size))


def end(status=0, protocol_status=0):
    return record(END_REQUEST, struct.pack("!IB3x", status, protocol_status))


def block(status, *fields, newline="\r\n", reason=None):
    """A CGI header section; `fields` are "Name: value" lines, str (latin-1) or bytes."""
    reason = REASONS.get(status, "Reason") if reason is None else reason
    lines = [f"Status: {status} {reason}".rstrip(), *fields, "", ""]
    return newline.encode().join(
        line if isinstance(line, bytes) else line.encode("latin-1") for line in lines)


def pairs(content):
    """The name-value pairs of a PARAMS stream."""
    found, at = {}, 0

    def length():
        nonlocal at
        size = content[at]
        at += 1
        if size & 0x80:
            size = (size & 0x7F) << 24 | int.from_bytes(content[at:at + 3], "big")
            at += 3
        return size

    while at < len(content):
        name, value = length(), length()
        found[content[at:at + name].decode()] = content[at + name:at + name + value].decode("latin-1")
        at += name + value
    return found


def parameters(fields):
    """The PARAMS stream of name-value pairs."""
    def length(text):
        return struct.pack("!B" if len(text) < 128 else "!I", len(text) | (0 if len(text) < 128 else 1 << 31))
    return b"".join(length(name) + length(value) + name.encode() + value.encode() for name, value in fields.items())


def request(fields, content=b""):
    """The records of one request."""
    return (record(BEGIN_REQUEST, b"\0\1\0\0\0\0\0\0") + record(PARAMS, parameters(fields)) + record(PARAMS)
            + records(STDIN, content, 32768) + record(STDIN))


def output(received):
    """The content of the STDOUT records of a whole response."""
    said, is_whole = b"", False
    while len(received) >= 8:
        _, kind, _, length, padding, _ = struct.unpack("!BBHHBB", received[:8])
        said += received[8:8 + length] if kind == STDOUT else b""
        is_whole = is_whole or kind == END_REQUEST
        received = received[8 + length + padding:]
    if not is_whole:
        raise OSError("broken off")
    return said


def ask(path, records, patience=60):
    """Sends a request to a gateway's socket; returns its output: the header sections and the content."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(patience)
        connection.connect(path)
        # In one write: the gateway may respond and close before it has read the empty record at the end of the content.
        connection.sendall(records)
        return output(b"".join(iter(lambda: connection.recv(1 << 16), b"")))


def statuses(said):
    """The statuses of an output: of interim responses, and of the final one."""
    return [int(status) for status in re.findall(rb"Status: (\d{3})", said)]


METRICS = request({"REQUEST_METHOD": "GET", "REQUEST_URI": "/metrics"})
