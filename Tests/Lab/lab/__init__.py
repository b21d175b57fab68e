"""What the programs of Tests/Lab and the tests of the nginx module share.

Invariant: it needs only Python 3.11; `http2` needs the package python3-h2.
"""
