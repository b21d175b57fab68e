"""fastcgi_next_upstream: the first responder fails, before or after an interim response; the second responds."""

import socket

import case


def refused_address():
    """Returns a socket and its address, which refuses connections while the socket is open."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock, "127.0.0.1:%d" % sock.getsockname()[1]


class NextUpstream(case.NginxTestCase):
    upstreams = 2
    refused, address = refused_address()
    http = """
        upstream pair {
            server %%%%UPSTREAM1%%%% max_fails=0; server %%%%UPSTREAM2%%%% max_fails=0 backup;
        }
        upstream dead { server %s max_fails=0; server %%%%UPSTREAM2%%%% max_fails=0 backup; }
        fastcgi_next_upstream error timeout invalid_header http_503 non_idempotent;
        interim_responses 104;
    """ % address
    server = """
        location /pair { fastcgi_pass pair; }
        location /buffered { fastcgi_pass pair; fastcgi_request_buffering on; fastcgi_buffering on; }
        location /dead { fastcgi_pass dead; }
    """

    def second(self, message, *interims):
        exchange = self.responders[1].accept()
        exchange.content()
        exchange.interim(104, "X-From: 2")
        exchange.final(200, content=b"second")
        early, final = message.finish()
        self.assertEqual([one["X-From"] for one in early], [*interims, "2"])
        self.assertEqual((final.status, final.content), (200, b"second"))

    @case.over(*case.PROTOCOLS)
    def test_first_refuses_the_connection(self, protocol):
        self.second(self.connect(protocol).start("POST", "/dead", content=b"x"))

    @case.over(*case.PROTOCOLS)
    def test_first_closes(self, protocol):
        message = self.connect(protocol).start("GET", "/pair")
        self.upstream.accept().close()
        self.second(message)

    @case.over(*case.PROTOCOLS)
    def test_first_closes_after_an_interim(self, protocol):
        message = self.connect(protocol).start("GET", "/pair")
        exchange = self.upstream.accept()
        exchange.interim(104, "X-From: 1")
        self.assertEqual(message.next()["X-From"], "1")
        exchange.close()
        self.second(message)

    @case.over(*case.PROTOCOLS)
    def test_first_closes_within_a_block(self, protocol):
        message = self.connect(protocol).start("POST", "/buffered", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.stdout(b"Status: 104 x\r\nX-From: 1\r\n")
        exchange.close()
        self.second(message)

    @case.over(*case.PROTOCOLS)
    def test_first_responds_503(self, protocol):
        message = self.connect(protocol).start("POST", "/buffered", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(104, "X-From: 1")
        exchange.final(503)
        self.second(message, "1")

    @case.over(*case.PROTOCOLS)
    def test_first_sends_invalid_header(self, protocol):
        message = self.connect(protocol).start("POST", "/buffered", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.stdout(b"X-A: b\r\nStatus: 104\r\n\r\n")
        exchange.end()
        self.second(message)
