"""One HTTP/2 request on its own TLS connection, and all responses to it."""

import select
import socket
import time

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from wire import Answer, Broken

# Fields that HTTP/2 does not use.
CONNECTION = ("connection", "host")


class Connection:
    """One connection, for one exchange."""

    def __init__(self, peer):
        self._peer = peer
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self._state = h2.connection.H2Connection(config)
        self._answer = None
        self._content = bytearray()
        self._is_ended = False

    def carry(self, exchange):
        try:
            return self._carry(exchange)
        except h2.exceptions.ProtocolError as error:
            raise Broken(f"HTTP/2: {error}") from None

    def _carry(self, exchange):
        state = self._state
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        state.initiate_connection()
        fields = [
            (":method", exchange.method),
            (":path", exchange.target),
            (":scheme", "https"),
            (":authority", exchange.fields.get("Host", "localhost")),
        ]
        fields += [
            (name.lower(), str(value))
            for name, value in exchange.fields.items()
            if name.lower() not in CONNECTION
        ]
        has_content = bool(exchange.content)
        state.send_headers(1, fields, end_stream=not has_content)
        self._flush()
        sent = 0
        for piece, seconds in exchange.parts():
            sent += len(piece)
            if not self._send(piece, sent == len(exchange.content), exchange):
                break
            self._listen(seconds, exchange)
        while not self._is_ended:
            if time.monotonic() > exchange.until:
                raise Broken("no response in time")
            self._listen(0.5, exchange)
        self._answer.content = bytes(self._content)
        return self._answer

    def _send(self, piece, is_last, exchange):
        """Sends a piece as the windows allow; returns False if the server has already responded."""
        at = 0
        while at < len(piece):
            if self._answer:
                return False
            room = min(
                self._state.local_flow_control_window(1), self._state.max_outbound_frame_size
            )
            if room <= 0:
                if time.monotonic() > exchange.until:
                    raise Broken("no window in time")
                self._listen(0.5, exchange)
                continue
            part = piece[at : at + room]
            at += len(part)
            self._state.send_data(1, part, end_stream=is_last and at == len(piece))
            self._flush()
        return True

    def _flush(self):
        self._peer.sendall(self._state.data_to_send())

    def _listen(self, seconds, exchange):
        if not self._peer.pending() and not select.select([self._peer], [], [], seconds)[0]:
            return
        data = self._peer.recv(1 << 16)
        if not data:
            raise Broken("closed without a response")
        for event in self._state.receive_data(data):
            self._take(event, exchange)
        self._flush()

    def _take(self, event, exchange):
        if isinstance(event, h2.events.InformationalResponseReceived):
            exchange.on_interim(answer_of(event))
        elif isinstance(event, h2.events.ResponseReceived):
            self._answer = answer_of(event)
        elif isinstance(event, h2.events.DataReceived):
            self._content += event.data
            self._state.acknowledge_received_data(event.flow_controlled_length, 1)
        elif isinstance(event, h2.events.StreamEnded):
            self._is_ended = True
        elif isinstance(event, h2.events.StreamReset):
            # NO_ERROR after a whole response: the server accepts no more content.
            if not self._answer or event.error_code:
                raise Broken(f"the stream was reset ({event.error_code})")
            self._is_ended = True
        elif isinstance(event, h2.events.ConnectionTerminated) and not self._answer:
            raise Broken("the connection was ended (GOAWAY)")


def answer_of(event):
    fields = dict(event.headers)
    return Answer(int(fields[":status"]), fields)
