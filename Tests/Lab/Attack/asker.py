#!/usr/bin/env python3
"""Retrieves an upload's offset repeatedly, through nginx and from the gateway directly, and times the responses.

usage: asker.py PORT SOCKET TARGET

It runs until its standard input ends and then prints JSON: for `nginx` and for `gateway` a list of [seconds,
failure or null]. It is a separate process, so that the attacker's work does not count as waiting.
"""

import http.client
import json
import socket
import struct
import sys
import threading
import time

OTHER = "127.0.0.2"
PATIENCE = 30


def ask_nginx(port, target):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE, source_address=(OTHER, 0))
    try:
        connection.request("HEAD", target, headers={"Host": "localhost"})
        answer = connection.getresponse()
        return answer.status, answer.headers["Upload-Offset"]
    finally:
        connection.close()


def record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


def ask_gateway(path, target):
    fields = {"REQUEST_METHOD": "HEAD", "REQUEST_URI": target, "REMOTE_ADDR": OTHER, "HTTP_HOST": "localhost",
              "SPOOLGATE_ROUTE": "default", "SPOOLGATE_ORIGIN": "http://localhost", "REQUEST_SCHEME": "http"}
    parameters = b"".join(struct.pack(">BB", len(name), len(value)) + name.encode() + value.encode()
                          for name, value in fields.items())
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(path)
        connection.sendall(record(1, b"\0\1\0\0\0\0\0\0") + record(4, parameters) + record(4, b"") + record(5, b""))
        received = b""
        while part := connection.recv(4096):
            received += part
    head = received[8:].split(b"\r\n")
    fields = dict(line.split(b": ", 1) for line in head if b": " in line)
    if not received or not head[0].startswith(b"Status: "):
        raise OSError("broken off")
    offset = {name.lower(): value for name, value in fields.items()}.get(b"upload-offset", b"").decode()
    return int(head[0].split()[1]), offset


def main():
    port, path, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    seen, over = {"nginx": [], "gateway": []}, threading.Event()

    def run(results, ask, where):
        while not over.is_set():
            begin, failure = time.monotonic(), None
            try:
                answer = ask(where, target)
                if answer != (204, "0"):
                    failure = repr(answer)
            except (OSError, http.client.HTTPException) as error:
                failure = repr(error)
            results.append([time.monotonic() - begin, failure])
            time.sleep(0.02)
    threads = [threading.Thread(target=run, args=(seen["nginx"], ask_nginx, port)),
               threading.Thread(target=run, args=(seen["gateway"], ask_gateway, path))]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    json.dump(seen, sys.stdout)


main()
