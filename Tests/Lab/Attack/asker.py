#!/usr/bin/env python3
"""Retrieves an upload's offset repeatedly, through nginx and from the gateway directly, and times the responses.

usage: asker.py PORT SOCKET TARGET

It runs until its standard input ends and then prints JSON: for `nginx` and for `gateway` a list of [seconds,
failure or null]. It is a separate process, so that the attacker's work does not count as waiting.
"""

import json
import pathlib
import re
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from lab import exchange, fastcgi
from lab.http1 import Closed

OTHER = "127.0.0.2"
PATIENCE = 30


def ask_nginx(port, target):
    response = exchange.ask(port, "HEAD", target, source=OTHER, patience=PATIENCE)
    return response.status, response.offset


def ask_gateway(path, target):
    fields = {"REQUEST_METHOD": "HEAD", "REQUEST_URI": target, "REMOTE_ADDR": OTHER, "HTTP_HOST": "localhost",
              "SPOOLGATE_ROUTE": "default", "SPOOLGATE_ORIGIN": "http://localhost", "REQUEST_SCHEME": "http"}
    head = fastcgi.ask(path, fastcgi.request(fields), PATIENCE)
    offset = re.search(rb"(?i)\nUpload-Offset: (\d+)", head)
    return fastcgi.statuses(head)[-1], offset and int(offset[1])


def main():
    port, path, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    seen, over = {"nginx": [], "gateway": []}, threading.Event()

    def run(results, ask, where):
        while not over.is_set():
            begin, failure = time.monotonic(), None
            try:
                answer = ask(where, target)
                if answer != (204, 0):
                    failure = repr(answer)
            except (OSError, Closed, IndexError) as error:
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
