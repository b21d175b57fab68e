"""The directive interim_responses: inheritance, unusual places, and the arguments that nginx -t accepts."""

import unittest

import case
import server


class Places(case.NginxTestCase):
    http = "interim_responses 103 104;"
    upstreams = 1
    server = """
        location /inherited { fastcgi_pass %%UPSTREAM%%; }
        location /off { fastcgi_pass %%UPSTREAM%%; interim_responses off; }
        location /outer {
            fastcgi_pass %%UPSTREAM%%; interim_responses 104;
            location /outer/inherited { fastcgi_pass %%UPSTREAM%%; }
            location /outer/103 { fastcgi_pass %%UPSTREAM%%; interim_responses 103; }
            location /outer/off { fastcgi_pass %%UPSTREAM%%; interim_responses off; }
        }
        location /if {
            interim_responses 104;
            if ($arg_upload) { fastcgi_pass %%UPSTREAM%%; }
        }
        location /named { interim_responses off; try_files /nonexistent @named; }
        location @named { fastcgi_pass %%UPSTREAM%%; interim_responses 104; }
        location /variable { set $to %%UPSTREAM%%; fastcgi_pass $to; interim_responses 104; }
        location ~ \\.regex$ { fastcgi_pass %%UPSTREAM%%; interim_responses 104; }
        location /rewritten { rewrite ^ /outer/103 last; }
        location = /files/ { index nothing; interim_responses off; }
        location /prefix/ { fastcgi_pass %%UPSTREAM%%; interim_responses 104; error_page 418 @named; }
    """

    def passed(self, path, protocol="h1"):
        """Return the statuses, of 103 and 104, that pass at `path`."""
        message = self.connect(protocol).start("POST", path, content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(103)
        exchange.interim(104)
        exchange.final(200, content=b"end")
        interims, final = message.finish()
        self.assertEqual((final.status, final.content), (200, b"end"))
        return [one.status for one in interims]

    def test_inherited_from_http(self):
        self.assertEqual(self.passed("/inherited"), [103, 104])
        self.assertEqual(self.passed("/"), [103, 104])

    def test_nested(self):
        self.assertEqual(self.passed("/outer"), [104])
        self.assertEqual(self.passed("/outer/inherited"), [104])
        self.assertEqual(self.passed("/outer/103"), [103])

    @case.over("/off", "/outer/off")
    def test_off_inside_on(self, path):
        # As without the module, the first block is the final response.
        client = self.connect()
        client.start("POST", path, content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(103)
        exchange.final(200)
        self.assertIn(b"\r\nServer: nginx", client.take_until(b"\r\n\r\n"))

    @case.over("/if?upload=1", "/named", "/variable", "/a.regex", "/prefix/")
    def test_place(self, path):
        for protocol in case.PROTOCOLS:
            self.assertEqual(self.passed(path, protocol), [104])

    def test_rewritten(self):
        self.assertEqual(self.passed("/rewritten"), [103])


class OnInsideOff(case.NginxTestCase):
    http = "interim_responses off;"
    server = """
        interim_responses 104;
        location /off { interim_responses off; location /off/on { fastcgi_pass %%UPSTREAM%%;
                                                                 interim_responses 103; } }
    """

    def test_server_overrides_http(self):
        for path, expected in (("/", [104]), ("/off/on", [103])):
            self.assertEqual(Places.passed(self, path), expected)


class Arguments(unittest.TestCase):
    """The result of nginx -t."""

    def check(self, *directives):
        nginx = server.Nginx("\n".join("location /%d { %s }" % one for one in enumerate(directives)))
        try:
            return nginx.test()
        finally:
            nginx.remove()

    def test_valid(self):
        for arguments in "off", "104", "104 100", "100 104", "100", "103 104", "199", "102 103 104":
            accepted, said = self.check("interim_responses %s;" % arguments)
            self.assertTrue(accepted, said)

    def test_invalid(self):
        for arguments in ("off 104", "104 off", "off off", "99", "200", "101", "0", "1044", "10", "-104",
                          "+104", "104x", "x", "on", "104,100", "104 104", "104 100 104", "0104", '""'):
            accepted, said = self.check("interim_responses %s;" % arguments)
            self.assertFalse(accepted, arguments)
            self.assertIn("[emerg]", said)
            self.assertRegex(said, "interim_responses|interim status", arguments)

    def test_without_arguments(self):
        accepted, said = self.check("interim_responses;")
        self.assertFalse(accepted)
        self.assertIn('invalid number of arguments in "interim_responses" directive', said)

    def test_twice(self):
        accepted, said = self.check("interim_responses 104; interim_responses 103;")
        self.assertFalse(accepted)
        self.assertIn('"interim_responses" directive is duplicate', said)
