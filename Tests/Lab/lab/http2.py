"""An HTTP/2 client (prior knowledge or TLS) on python-h2, with the methods of http1.

python-h2 checks the frames that it receives: field names in lower case, HPACK table sizes, stream states.
"""

import time

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import h2.stream
from lab.http1 import Closed, Response, Responses, Socket

# Frames in flight when a stream is reset are ignored (RFC 9113, section 5.1); python-h2 4.1 does not
# ignore an interim response.
h2.stream._transitions.setdefault(
    (h2.stream.StreamState.CLOSED, h2.stream.StreamInputs.RECV_INFORMATIONAL_HEADERS),
    (h2.stream.H2StreamStateMachine.recv_on_closed_stream, h2.stream.StreamState.CLOSED))


class Client(Socket):
    def __init__(self, port, tls=False, window=None, **more):
        super().__init__(port, "h2" if tls else None, **more)
        self.messages = {}
        self.acknowledge = True     # return flow control credit for received content
        self.events = []            # connection events, for tests that check them
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="latin-1"))
        if window is not None:
            self.h2.local_settings[h2.settings.SettingCodes.INITIAL_WINDOW_SIZE] = window
            self.h2.local_settings.acknowledge()
        self.h2.initiate_connection()
        self.flush()

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            self.send(data)

    def start(self, method, path, *fields, content=None, length=None, authority="localhost"):
        """Sends a request's header section, and its content if given."""
        if content is not None:
            length = len(content)
        head = [(":method", method), (":scheme", "https"), (":authority", authority), (":path", path)]
        for field in fields:
            name, value = field.split(": ", 1)
            head.append((name.lower(), value))
        if length is not None:
            head.append(("content-length", str(length)))
        stream = self.h2.get_next_available_stream_id()
        message = self.messages[stream] = Message(self, stream)
        is_whole = length == 0 or length is None and method in ("GET", "HEAD", "DELETE")
        self.h2.send_headers(stream, head, end_stream=is_whole)
        self.flush()
        if content is not None:
            message.write(content, end=True)
        return message

    def settings(self, **values):
        """Changes settings (named as in SettingCodes) and waits until the server has acknowledged them."""
        self.h2.update_settings({h2.settings.SettingCodes[name]: value
                                 for name, value in values.items()})
        self.flush()
        self.pump_until(lambda: any(isinstance(event, h2.events.SettingsAcknowledged)
                                    and event.changed_settings for event in self.events))
        self.events.clear()

    def pump_until(self, done):
        while not done():
            self.pump()

    def pump(self, data=None):
        """Receives once, unless given what was received, and dispatches the events to their messages."""
        try:
            events = self.h2.receive_data(data or self.receive())
        except h2.exceptions.ProtocolError as error:
            raise AssertionError(f"the server violated HTTP/2: {error!r}") from error
        for event in events:
            if isinstance(event, h2.events.ConnectionTerminated):
                raise Closed(f"GOAWAY {event.error_code}")
            message = self.messages.get(getattr(event, "stream_id", None))
            if message:
                message.take(event)
            else:
                self.events.append(event)
        self.flush()


class Message(Responses):
    """One stream."""

    def __init__(self, client, stream):
        self.client, self.stream = client, stream
        self.responses = []     # not yet returned; only the last can be incomplete
        self.final = None
        self.reset_code = None
        self.received = 0       # content bytes of the final response

    def take(self, event):
        if isinstance(event, (h2.events.InformationalResponseReceived, h2.events.ResponseReceived)):
            fields = [tuple(field) for field in event.headers]
            response = Response(int(fields[0][1]), fields[1:])
            if not response.complete:
                self.final = response
                response.content = bytearray()
            self.responses.append(response)
        elif isinstance(event, h2.events.DataReceived):
            self.final.content += event.data
            self.received += len(event.data)
            if self.client.acknowledge and event.flow_controlled_length:
                self.client.h2.acknowledge_received_data(event.flow_controlled_length, self.stream)
        elif isinstance(event, h2.events.StreamEnded):
            self.final.content = bytes(self.final.content)
            self.final.complete = True
        elif isinstance(event, h2.events.StreamReset):
            self.reset_code = event.error_code

    def write(self, content, end=False):
        view = memoryview(content)
        while True:
            if self.reset_code is not None:
                raise Closed(f"RST_STREAM {self.reset_code}")
            room = min(self.client.h2.local_flow_control_window(self.stream),
                       self.client.h2.max_outbound_frame_size)
            if view and room <= 0:
                self._wait()
                continue
            piece, view = view[:room], view[len(view[:room]):]
            self.client.h2.send_data(self.stream, bytes(piece), end_stream=end and not view)
            self.client.flush()
            if not view:
                return

    def _wait(self):
        if self.reset_code is not None:
            raise Closed(f"RST_STREAM {self.reset_code}")
        self.client.pump()

    def head(self):
        """Receives the next response; its content may be incomplete."""
        while not self.responses:
            self._wait()
        return self.responses.pop(0)

    def listen(self, seconds=0):
        """The next response; None if it does not come in time. Its content may be incomplete."""
        deadline = time.monotonic() + seconds
        while not self.responses:
            if self.reset_code is not None:
                raise Closed(f"RST_STREAM {self.reset_code}")
            data = self.client.receive_within(max(0, deadline - time.monotonic()))
            if not data:
                return None
            self.client.pump(data)
        return self.responses.pop(0)

    def complete(self, response):
        """Receives the content of a response."""
        while not response.complete:
            self._wait()

    def cancel(self):
        """Sends RST_STREAM."""
        self.client.h2.reset_stream(self.stream, h2.errors.ErrorCodes.CANCEL)
        self.client.flush()
