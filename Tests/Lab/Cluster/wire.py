"""Requests of the newest version of the draft, with one connection each."""

from lab import exchange
from lab.http1 import Closed

__all__ = ["Closed", "ask", "begin"]

VERSION = {"Upload-Draft-Interop-Version": "10"}


def begin(port, method, target, fields, **more):
    """A request whose content is sent by the caller, in parts."""
    return exchange.Exchange(port, method, target, {**VERSION, **fields}, **more)


def ask(port, method, target, fields=None, content=b""):
    """Sends a whole request; returns its final response."""
    return exchange.ask(port, method, target, {**VERSION, **(fields or {})}, content)
