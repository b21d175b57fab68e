#!/usr/bin/env python3
"""Lists the files of Sources that one request enters on its thread, with the number of functions in each.

usage: walk.py [--spoolgate PATH] [SCENARIO ...]

The gateway, a release build with debugging information, runs in callgrind; llvm-symbolizer names the functions of the
addresses that the thread executes, including inlined ones. Earlier requests fill the caches. The scenarios: an upload
of 1 MiB with a 104, whose content is written as nginx does (`lane`), a HEAD of an upload, an ordinary upload of 1 MiB.

Exit status: 0 success, 69 valgrind or llvm-symbolizer is missing, 70 a failure.
"""

import argparse
import collections
import itertools
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

import budget
from lab import fastcgi
from lab.processes import NeverHappened

CONTENT = bytes(range(256)) * 4096
DATA = 8
SYMBOLIZER = next(iter(filter(shutil.which, ["llvm-symbolizer", *(f"llvm-symbolizer-{n}" for n in range(14, 30))])), "")
# What the compiler derives from a function, or adds to its name.
DERIVED = re.compile(r"^(?:(?:merged|specialized|partial apply(?: forwarder)?(?: for)?|protocol witness for"
                     r"|(?:implicit )?closure #\d+ (?:\(.*?\) )?in|\$defer #\d+ \(\) in|default argument \d+ of)\s*)+")


def write_directly(path, records, content, expected):
    """Sends a request with its content as nginx does with `spool_receive`: into the gateway's file."""
    def message(kind, count=0):
        return fastcgi.record(DATA, struct.pack("!BB2xIQQ", kind, 1, 0, count, 0))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(path)
        connection.sendall(records + message(1))
        received, files, written = b"", [], 0
        while written < len(content):
            part, fresh, _, _ = socket.recv_fds(connection, 1 << 16, 1)
            received, files = received + part, files + fresh
            # The limits of the grant and of later windows.
            limits = re.findall(rb"\x01\x08..\x00\x18..[\x01\x03]\x01.{14}(.{8})", received, re.S)
            if not part or not files and limits:
                raise RuntimeError(f"no grant, but {received[-300:]!r}")
            if limits and (limit := struct.unpack("!Q", limits[-1])[0]) > written:
                written += os.write(files[0], content[written:limit])
                connection.sendall(message(2, written) if written < len(content) else b"")
        os.close(files[0])
        connection.sendall(message(3, len(content)) + fastcgi.record(fastcgi.STDIN))
        output = fastcgi.output(received + b"".join(iter(lambda: connection.recv(1 << 16), b"")))
        if fastcgi.statuses(output)[0] != 104 or fastcgi.statuses(output)[-1] != expected:
            raise RuntimeError(f"expected 104 and {expected}, received {output[:300]!r}")


def scenarios(path):
    draft = ("Upload-Draft-Interop-Version", "10")
    part = budget.request("PUT", "/files/head", [draft, ("Upload-Complete", "?0")], b"0123456789", "told")
    created = budget.ask(path, part, 201)
    target = re.search(rb"Location: http://upload.example(\S+)", created).group(1).decode()
    head = budget.request("HEAD", target, [draft], route="told")
    plain = budget.request("PUT", "/files/plain", (), CONTENT)
    # The head without the record that ends the content.
    whole = budget.request("PUT", "/files/lane", [draft, ("Upload-Complete", "?1")], CONTENT, "told")
    lane = whole[:-len(fastcgi.record(fastcgi.STDIN)) - len(fastcgi.records(fastcgi.STDIN, CONTENT, 32768))]
    return {
        "lane": lambda: write_directly(path, lane, CONTENT, 201),
        "head": lambda: budget.ask(path, head, 204),
        "plain": lambda: budget.ask(path, plain, 201),
    }


def executed(profile, name):
    """The addresses in the program `name` that a thread has executed, and the number of instructions."""
    here, objects, addresses, count, called = False, {}, set(), 0, False
    with open(profile) as file:
        for line in file:
            if match := re.match(r"ob=\((\d+)\)(?: (.*))?", line):
                objects[match[1]] = match[2] or objects.get(match[1], "")
                here = os.path.basename(objects[match[1]].strip()) == name
            elif match := re.match(r"c?ob=\((\d+)\) (.*)", line):
                objects[match[1]] = match[2]
            elif line.startswith("calls="):
                called = True
            elif match := re.match(r"(0x[0-9a-f]+) (\d+)$", line):
                count += 0 if called else int(match[2])
                called = False
                if here:
                    addresses.add(int(match[1], 16))
    return addresses, count


def entered(program, addresses):
    """The functions by file of Sources."""
    given = "".join(f"{address:#x}\n" for address in sorted(addresses))
    resolved = subprocess.run([SYMBOLIZER, "--inlines", "--no-demangle", "--output-style=JSON", f"--obj={program}"],
                              input=given, capture_output=True, text=True, check=True).stdout
    pairs = set()
    for line in resolved.splitlines():
        for frame in json.loads(line).get("Symbol", []):
            file = re.search(r"/(Sources/.*)", frame["FileName"])
            # The address of a constant is no function.
            is_constant = frame["FunctionName"].endswith("vau")
            if file and frame["Line"] and "/checkouts/" not in frame["FileName"] and not is_constant:
                pairs.add((file[1], frame["FunctionName"]))
    symbols = sorted({symbol for _, symbol in pairs})
    names = subprocess.run(["swift", "demangle", "--compact", "--simplified"], input="\n".join(symbols),
                           capture_output=True, text=True, check=True).stdout.splitlines()
    plain = {symbol: re.sub(r" in conformance .*", "", DERIVED.sub("", name)) for symbol, name in zip(symbols, names)}
    files = collections.defaultdict(set)
    for file, symbol in pairs:
        files[file].add(plain[symbol])
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--spoolgate", default=".build/walk/release/spoolgate")
    parser.add_argument("scenario", nargs="*", default=[])
    options = parser.parse_args()
    if not shutil.which("valgrind") or not SYMBOLIZER:
        print("Nothing was measured: valgrind or llvm-symbolizer is not installed.", file=sys.stderr)
        return 69
    work, upstream, daemon = tempfile.mkdtemp(prefix="walk."), budget.Upstream(), None
    upstream.start()
    try:
        daemon = budget.Gateway(options.spoolgate, work, upstream,
                                ["--dump-instr=yes", "--compress-pos=no", "--separate-threads=yes"])
        daemon.start()
        for name, run in scenarios(daemon.socket).items():
            if options.scenario and name not in options.scenario:
                continue
            for _ in range(3):
                run()
            profiles = [executed(profile, "bare") for profile in daemon.count(run)]
            addresses, count = max(profiles, key=lambda found: found[1])
            files = entered(options.spoolgate, addresses)
            print(f"{name}: {len(files)} files, {sum(map(len, files.values()))} functions, {count:,} instructions")
            for folder, names in itertools.groupby(sorted(files, key=os.path.split), os.path.dirname):
                print(f"  {folder}: " + ", ".join(f"{os.path.basename(name)} {len(files[name])}" for name in names))
        return 0
    except (RuntimeError, OSError, NeverHappened, subprocess.CalledProcessError) as error:
        print(f"Nothing was measured: {error}\n{daemon.log()[-3000:] if daemon else ''}", file=sys.stderr)
        return 70
    finally:
        if daemon and daemon.process:
            daemon.process.end(60)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
