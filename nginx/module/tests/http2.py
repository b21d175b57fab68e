"""An HTTP/2 client (prior knowledge or TLS) on python-h2, with the methods of http1.

python-h2 checks the frames that it receives: field names in lower case, HPACK table sizes, stream states.
"""

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

import h2.stream

from http1 import Closed, Response, Socket, open_socket

# Frames in flight when a stream is reset are ignored (RFC 9113, section 5.1); python-h2 4.1 does not
# ignore an interim response.
h2.stream._transitions.setdefault(
    (h2.stream.StreamState.CLOSED, h2.stream.StreamInputs.RECV_INFORMATIONAL_HEADERS),
    (h2.stream.H2StreamStateMachine.recv_on_closed_stream, h2.stream.StreamState.CLOSED))


class Client(Socket):
    def __init__(self, port, tls=False, receive_buffer=None, window=None):
        super().__init__(open_socket(port, "h2" if tls else None, receive_buffer))
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
        """Send a request's header section, and its content if given."""
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
        self.h2.send_headers(stream, head, end_stream=length == 0 or length is None and method in ("GET", "HEAD"))
        self.flush()
        if content is not None:
            message.write(content, end=True)
        return message

    def settings(self, **values):
        """Change settings (named as in SettingCodes) and wait until nginx has acknowledged them."""
        self.h2.update_settings({h2.settings.SettingCodes[name]: value
                                 for name, value in values.items()})
        self.flush()
        self.pump_until(lambda: any(isinstance(event, h2.events.SettingsAcknowledged)
                                    and event.changed_settings for event in self.events))
        self.events.clear()

    def pump_until(self, done):
        while not done():
            self.pump()

    def pump(self):
        """Receive once and dispatch the events to their messages."""
        data = self.receive()
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError as error:
            raise AssertionError("nginx violated HTTP/2: %r" % error) from error
        for event in events:
            if isinstance(event, h2.events.ConnectionTerminated):
                raise Closed("GOAWAY %s" % event.error_code)
            message = self.messages.get(getattr(event, "stream_id", None))
            if message:
                message.take(event)
            else:
                self.events.append(event)
        self.flush()


class Message:
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
                raise Closed("RST_STREAM %s" % self.reset_code)
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
            raise Closed("RST_STREAM %s" % self.reset_code)
        self.client.pump()

    def head(self):
        """Receive the next response; its content may be incomplete."""
        while not self.responses:
            self._wait()
        return self.responses.pop(0)

    def next(self):
        """Receive the next interim response, or the final response with its content."""
        response = self.head()
        while not response.complete:
            self._wait()
        return response

    def finish(self):
        """Receive all responses; returns (interim responses, final response)."""
        interims = []
        while True:
            response = self.next()
            if response.status >= 200:
                return interims, response
            interims.append(response)

    def cancel(self):
        """Send RST_STREAM."""
        self.client.h2.reset_stream(self.stream, h2.errors.ErrorCodes.CANCEL)
        self.client.flush()
