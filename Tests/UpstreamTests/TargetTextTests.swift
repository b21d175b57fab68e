import Testing

@testable import SpoolgateUpstream

@Suite("The text of an upstream target")
struct TargetTextTests {
    @Test(
        "a valid text is read",
        arguments: [
            ("http://127.0.0.1:8080", UpstreamTarget.http(base: "http://127.0.0.1:8080")),
            ("https://app.example.org/base/", .http(base: "https://app.example.org/base")),
            ("http://[::1]:80/", .http(base: "http://[::1]:80")),
            ("http://under_score", .http(base: "http://under_score")),
            ("unix:/run/app.sock", .unix(path: "/run/app.sock")),
            ("directory:/srv/in", .directory(path: "/srv/in")),
            ("directory:/x y/ü in", .directory(path: "/x y/ü in")),
            ("unix:/x y/app.sock", .unix(path: "/x y/app.sock")),
            ("s3:http://[::1]:9000/drop", bucket("http://[::1]:9000", "drop")),
            ("s3:https://s3.test/a.b-c/", bucket("https://s3.test", "a.b-c")),
            ("s3:https://s3.test/drop/x%20y/ü/", bucket("https://s3.test", "drop", "x y/ü")),
        ]
    )
    func right(text: String, target: UpstreamTarget) throws {
        #expect(try UpstreamTarget(text) == target)
    }

    private static func bucket(
        _ endpoint: String,
        _ name: String,
        _ prefix: String = ""
    ) -> UpstreamTarget {
        .bucket(BucketAddress(endpoint: endpoint, name: name, prefix: prefix))
    }

    @Test(
        "an invalid text is refused with the reason",
        arguments: [
            ("", "must begin with"), ("localhost:80", "must begin with"),
            ("ftp://x", "must begin with"),
            ("http://", "requires a host"), ("http:///x", "requires a host"),
            ("http://:80", "requires a host"), ("http://user@h", "user or password"),
            ("http://user:pw@h/", "user or password"), ("http://h?x=1", "have a query"),
            ("http://h/#x", "or a fragment"), ("http://h:0", "port"), ("http://h:65536", "port"),
            ("http://h:", "port"), ("http://h:+1", "port"), ("http://h:8a", "port"),
            ("http://[::1", "closing ]"), ("http://[x]", "IPv6"), ("http://[::1]x", "port"),
            ("http://a b", "spaces"), ("http://a/b c", "%20"), ("directory:/a\tb", "control"),
            ("unix:/a\u{9b}b", "control"), ("http://h\r\n", "control"), ("http://h,i", "host name"),
            ("unix:run/app.sock", "absolute"), ("unix:", "absolute"),
            ("unix:/" + String(repeating: "x", count: 107), "longer"),
            ("directory:in", "absolute"), ("directory://host/x", "absolute"),
            ("s3:", "URL of a bucket"), ("s3:/drop", "URL of a bucket"),
            ("s3://drop/x", "URL of a bucket"), ("s3:https://h", "requires a bucket after"),
            ("s3:https://h/", "requires a bucket after"), ("s3:https://h//x", "not a bucket name"),
            ("s3:https://h/ab", "not a bucket name"), ("s3:https://h/a%2Fb", "not a bucket name"),
            ("s3:https://u:p@h/drop", "user or password"), ("s3:https://h/drop?x", "have a query"),
            ("s3:https://h/drop/a b", "spaces"), ("s3:https://h/drop/a//b", "single slashes"),
            ("s3:https://h/drop/../b", "single slashes"), ("s3:https://h/drop/%2E", "single"),
            ("s3:https://h/drop/a%2Fb", "single"), ("s3:https://h/drop/%ff", "UTF-8"),
            ("s3:https://h/drop/%00", "control"),
            ("s3:https://h/drop/" + String(repeating: "x", count: 897), "longer"),
        ]
    )
    func wrong(text: String, word: String) {
        let error = #expect(throws: UpstreamTargetError.self) { try UpstreamTarget(text) }
        #expect(error?.reason.contains(word) == true, "\(error?.reason ?? "")")
    }

    @Test(
        "targets with one address are one application, with any path and spelling",
        arguments: [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://App.test/a/b", "http://app.test:80"),
            ("http://app.test", "http://app.test:80"),
            ("https://app.test/", "https://app.test:443"), ("http://[::1]/x", "http://[::1]:80"),
            ("http://[::1]:81", "http://[::1]:81"), ("unix:/run/App.sock", "unix:/run/App.sock"),
            ("directory:/srv/in", "directory:/srv/in"),
            ("s3:https://s3.test/drop/x", "https://s3.test:443"),
        ]
    )
    func place(text: String, place: String) throws {
        #expect(try UpstreamTarget(text).place == place)
    }

    @Test("a base is split into its parts")
    func location() throws {
        let location = UpstreamLocation(base: "https://[2001:db8::1]:8443/base")
        #expect(location.host == "2001:db8::1")
        #expect(location.url == "https://[2001:db8::1]:8443/")
        #expect(location.requestTarget("/a/../%2F?q") == "/base/a/../%2F?q")
        #expect(location.requestTarget("*") == "*")
        #expect(location.requestTarget("/a b") == nil)
        #expect(location.requestTarget("") == nil)
    }
}
