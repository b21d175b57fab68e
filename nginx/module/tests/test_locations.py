"""Interim responses with try_files, error_page, X-Accel-Redirect, auth_request, mirror and a cache."""

import case


class Locations(case.NginxTestCase):
    upstreams = 2
    http = """
        interim_responses 104;
        fastcgi_cache_path cache keys_zone=cache:1m;
    """
    server = """
        location /try { try_files $uri @upload; }
        location @upload { fastcgi_pass %%UPSTREAM1%%; }
        location /accel { fastcgi_pass %%UPSTREAM1%%; }
        location /accel_off { fastcgi_pass %%UPSTREAM1%%; }
        location = /target { internal; fastcgi_pass %%UPSTREAM2%%; }
        location = /target_off { internal; interim_responses off; fastcgi_pass %%UPSTREAM2%%; }
        location /error {
            fastcgi_pass %%UPSTREAM1%%; fastcgi_intercept_errors on; error_page 503 = @fallback;
        }
        location @fallback { fastcgi_pass %%UPSTREAM2%%; }
        location /unresolved {
            set $address "127.0.0.1:bad"; fastcgi_pass $address; error_page 500 502 = @fallback;
        }
        location /unresolved_static {
            set $address "127.0.0.1:bad"; fastcgi_pass $address; error_page 500 502 = /static;
        }
        location /cached {
            fastcgi_pass %%UPSTREAM1%%; fastcgi_buffering on; fastcgi_cache cache;
            fastcgi_cache_key $uri; fastcgi_cache_valid 200 1m; add_header X-Cache $upstream_cache_status;
        }
        location /limited { fastcgi_pass %%UPSTREAM1%%; limit_rate 20k; fastcgi_buffering on; }
        location /ssi_off { fastcgi_pass %%UPSTREAM1%%; add_header X-Added yes always; expires 1h; }
    """

    def respond(self, upstream, *interims, status=200, fields=(), content=b"", reads=True):
        exchange = upstream.accept()
        for offset in interims:
            exchange.interim(104, "Upload-Offset: %s" % offset)
        if reads:
            exchange.content()
        exchange.final(status, *fields, content=content)
        return exchange

    def both(self, message):
        """Return the offsets of the interim responses, and the final response."""
        interims, final = message.finish()
        return [one["Upload-Offset"] for one in interims], final

    @case.over(*case.PROTOCOLS)
    def test_try_files(self, protocol):
        message = self.connect(protocol).start("POST", "/try/this", content=b"x")
        self.respond(self.upstream, 1, 2, status=201)
        offsets, final = self.both(message)
        self.assertEqual((offsets, final.status), (["1", "2"], 201))

    @case.over(*case.PROTOCOLS)
    def test_x_accel_redirect_to_a_file(self, protocol):
        message = self.connect(protocol).start("GET", "/accel")
        self.respond(self.upstream, 1, fields=["X-Accel-Redirect: /static"])
        offsets, final = self.both(message)
        self.assertEqual((offsets, final.content), (["1"], b"a static file\n"))

    @case.over(*case.PROTOCOLS)
    def test_x_accel_redirect_to_another_responder(self, protocol):
        message = self.connect(protocol).start("GET", "/accel")
        self.respond(self.upstream, 1, fields=["X-Accel-Redirect: /target"])
        self.respond(self.responders[1], 2, content=b"second")
        offsets, final = self.both(message)
        self.assertEqual((offsets, final.content), (["1", "2"], b"second"))

    @case.over(*case.PROTOCOLS)
    def test_x_accel_redirect_to_off(self, protocol):
        message = self.connect(protocol).start("GET", "/accel")
        self.respond(self.upstream, 1, fields=["X-Accel-Redirect: /target_off"])
        self.respond(self.responders[1], content=b"second")
        offsets, final = self.both(message)
        self.assertEqual((offsets, final.content), (["1"], b"second"))

    @case.over(*case.PROTOCOLS)
    def test_error_page(self, protocol):
        message = self.connect(protocol).start("GET", "/error")
        self.respond(self.upstream, 1, status=503)
        self.respond(self.responders[1], 2, content=b"fallback")
        offsets, final = self.both(message)
        self.assertEqual((offsets, final.status, final.content), (["1", "2"], 200, b"fallback"))

    @case.over(*case.PROTOCOLS)
    def test_unresolved_upstream(self, protocol):
        # The content handler fails immediately; when it returns, another location handles the request.
        message = self.connect(protocol).start("GET", "/unresolved")
        self.respond(self.responders[1], 1, content=b"fallback")
        offsets, final = self.both(message)
        self.assertEqual((offsets, final.content), (["1"], b"fallback"))
        message = self.connect(protocol).start("GET", "/unresolved_static")
        self.assertEqual(self.assertStatuses(message, [], 200).content, b"a static file\n")

    @case.over(*case.PROTOCOLS)
    def test_cache(self, protocol):
        client = self.connect(protocol)
        path = "/cached/" + protocol
        message = client.start("GET", path)
        self.respond(self.upstream, 1, content=b"cached")
        offsets, final = self.both(message)
        self.assertEqual((offsets, final["X-Cache"], final.content), (["1"], "MISS", b"cached"))
        for _ in range(2):
            final = self.assertStatuses(client.start("GET", path), [], 200)
            self.assertEqual((final["X-Cache"], final.content), ("HIT", b"cached"))
        self.assertTrue(self.upstream.idle())

    @case.over(*case.PROTOCOLS)
    def test_limit_rate(self, protocol):
        message = self.connect(protocol).start("GET", "/limited")
        exchange = self.upstream.accept()
        exchange.content()
        for offset in range(3):
            exchange.interim(104, "Upload-Offset: %d" % offset)
            self.assertEqual(message.next()["Upload-Offset"], str(offset))
        exchange.final(200, content=b"x" * 40000)
        self.assertEqual(self.assertStatuses(message, [], 200).content, b"x" * 40000)

    @case.over(*case.PROTOCOLS)
    def test_fields_of_the_location_are_not_added(self, protocol):
        message = self.connect(protocol).start("GET", "/ssi_off")
        self.respond(self.upstream, 1)
        interims, final = message.finish()
        self.assertEqual([len(one.fields) for one in interims], [1])
        self.assertEqual(final["X-Added"], "yes")


class Subrequests(case.NginxTestCase):
    upstreams = 2
    server = """
        location /files/ {
            auth_request /create;
            auth_request_set $token $upstream_http_x_upload_token;
            fastcgi_param UPLOAD_TOKEN $token;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_pass %%UPSTREAM2%%;
        }
        location = /create {
            internal;
            interim_responses 104;
            fastcgi_pass_request_body off;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param CONTENT_LENGTH "";
            fastcgi_pass %%UPSTREAM1%%;
        }
        location /mirrored {
            mirror /copy; mirror_request_body off; interim_responses 104; fastcgi_pass %%UPSTREAM1%%;
        }
        location = /copy { internal; interim_responses 104; fastcgi_pass %%UPSTREAM2%%; }
    """

    @case.over(*case.PROTOCOLS)
    def test_auth_request(self, protocol):
        message = self.connect(protocol).start("POST", "/files/", "Expect: 100-continue", length=5)
        create = self.upstream.accept()
        create.interim(104, "Location: /files/1")
        self.assertEqual(message.next()["Location"], "/files/1")
        create.final(204, "X-Upload-Token: secret")
        if protocol in case.HTTP1:
            self.assertEqual(message.next().status, 100)
        message.write(b"hello", end=True)
        exchange = self.responders[1].accept()
        self.assertEqual(exchange.params["UPLOAD_TOKEN"], "secret")
        self.assertEqual(exchange.content(), b"hello")
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*case.PROTOCOLS)
    def test_auth_request_refuses(self, protocol):
        message = self.connect(protocol).start("POST", "/files/", length=5)
        create = self.upstream.accept()
        create.interim(104)
        create.final(403)
        self.assertStatuses(message, [104], 403)
        self.assertTrue(self.responders[1].idle())

    @case.over(*case.PROTOCOLS)
    def test_mirror(self, protocol):
        # The copy is a background subrequest: its responses do not reach the client.
        message = self.connect(protocol).start("GET", "/mirrored")
        exchange, copy = self.upstream.accept(), self.responders[1].accept()
        copy.interim(104, "X-Copy: yes")
        exchange.interim(104, "X-Copy: no")
        self.assertEqual(message.next()["X-Copy"], "no")
        copy.interim(104, "X-Copy: yes")
        copy.final(200)
        copy.until_closed()
        exchange.interim(104, "X-Copy: no")
        exchange.final(200)
        interims, final = message.finish()
        self.assertEqual([one["X-Copy"] for one in interims], ["no"])
        self.assertEqual(final.status, 200)
