"""FastCGI records as bytes, including invalid ones.

Multiplexing and management records are not supported, because nginx uses neither.
"""

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
    lines = [("Status: %s %s" % (status, reason)).rstrip(), *fields, "", ""]
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
