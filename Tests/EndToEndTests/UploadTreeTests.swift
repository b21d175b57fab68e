// `spoolgate-upload` for several files: their URLs, and skipped files.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("The client's command for several files")
struct UploadTreeTests {
    private struct Place {
        let scratch: ScratchDirectory
        let origin: LoopbackOrigin

        init() throws {
            scratch = try ScratchDirectory(in: ScratchDirectory.memory, "tree")
            origin = try LoopbackOrigin(status: "201 Created")
        }

        /// Runs a line of shell in the directory; `$program` is the command, `$url` the server.
        func run(_ line: String) throws -> Command {
            try Command(
                "/bin/sh",
                ["-c", "cd '\(scratch.path)' && \(line)"],
                environment: [
                    "XDG_STATE_HOME": scratch.file("state"), "no_proxy": "*",
                    "program": UploadCommandWorld.program, "url": origin.base + "/files",
                ]
            )
        }

        /// Returns the sorted targets and forgets them.
        func targets() -> [String] {
            defer { origin.forget { _ in true } }
            return origin.requests.map { "\($0.target.dropFirst("/files".count))" }.sorted()
        }
    }

    @Test(
        "a file in a directory keeps its path below the URL; each name is one segment of any bytes"
    )
    func directory() throws {
        let place = try Place()
        let made = try place.run(
            #"""
            mkdir -p d/sub/deep && echo 1 >d/a && echo 2 >'d/sub/b c?#%' && echo 3 >d/sub/deep/ü \
                && echo 4 >"$(printf 'd/sub/\377\376')" && echo 5 >'d/sub/-._~'
            """#
        )
        #expect(made.status == 0, "\(made.errors)")
        let taken = try place.run("$program -X PUT d $url")
        #expect(taken.status == 0, "\(taken.errors)")
        let targets = [
            "/a", "/sub/%FF%FE", "/sub/-._~", "/sub/b%20c%3F%23%25", "/sub/deep/%C3%BC",
        ]
        #expect(place.targets() == targets)
        #expect(try place.run("$program -X PUT d/ $url/").status == 0)
        #expect(place.targets() == targets)
        #expect(try place.run("cd d && $program -X PUT . \"$url?x=/\"").status == 0)
        #expect(place.targets() == targets.map { $0 + "?x=/" })
    }

    @Test("a URL that ends in a slash gets the file's name, also one that is not UTF-8")
    func name() throws {
        let place = try Place()
        _ = try place.run(#"mkdir d && echo 1 >d/a && echo 2 >"$(printf 'd/\377')""#)
        let cases = [
            ("d/a $url/", ["/a"]), ("d/a $url/b", ["/b"]), ("d/a $url", [""]),
            ("--no-name d/a $url/", ["/"]), ("\"$(printf 'd/\\377')\" $url/", ["/%FF"]),
            ("- $url/ <d/a", ["/"]), ("d/a d/* $url", ["/%FF", "/a"]),
        ]
        for (words, targets) in cases {
            let taken = try place.run("$program --creation plain -X PUT \(words)")
            // A stream cannot be sent in an ordinary request.
            guard !words.hasPrefix("- ") else {
                #expect(taken.status == 2)
                continue
            }
            #expect(taken.status == 0, "\(words): \(taken.errors)")
            #expect(place.targets() == targets, "\(words)")
        }
    }

    @Test("links are skipped or followed, and a loop of links ends")
    func links() throws {
        let place = try Place()
        _ = try place.run(
            "mkdir -p d/sub && echo 1 >d/a && ln -s ../a d/sub/l && ln -s .. d/sub/up"
        )
        _ = try place.run("ln -s nowhere d/broken && ln -s d/a link")
        let without = try place.run("$program -X PUT d $url")
        #expect(without.status == 0)
        #expect(without.errors.split(separator: "\n").count == 3, "\(without.errors)")
        #expect(place.targets() == ["/a"])
        let with = try place.run("rm d/broken; $program -X PUT --follow d $url")
        #expect(with.status == 0)
        #expect(with.errors.contains("d/sub/up: a link to a directory that contains it"))
        #expect(place.targets() == ["/a", "/sub/l"])
        // A link named on the command line is followed, as with `cp -H`.
        #expect(try place.run("$program -X PUT link d/a $url").status == 0)
        #expect(place.targets() == ["/a", "/link"])
        _ = try place.run("ln -s nowhere d/broken")
        let broken = try place.run("$program -X PUT --follow d $url")
        #expect(broken.status == 1)
        #expect(broken.errors.contains("stat d/broken: No such file or directory"))
        #expect(place.targets() == ["/a", "/sub/l"])
    }

    @Test("a list separates names by lines or zero bytes, and keeps relative names")
    func list() throws {
        let place = try Place()
        _ = try place.run("mkdir -p d/sub && echo 1 >d/a && echo 2 >'d/sub/x\ny' && echo 3 >d/-")
        let lines = try place.run(
            "printf './d//a\n\n%s/d/-\nd/../d/a\n' \"$PWD\" | $program -X PUT --files-from - $url"
        )
        #expect(lines.status == 0, "\(lines.errors)")
        #expect(place.targets() == ["/-", "/a", "/d/a"])
        let zeros = try place.run(
            "find d -type f -print0 >list; $program -X PUT -0 --files-from list $url/"
        )
        #expect(zeros.status == 0, "\(zeros.errors)")
        #expect(place.targets() == ["/d/-", "/d/a", "/d/sub/x%0Ay"])
        let missing = try place.run("echo gone | $program -X PUT --files-from - d/a $url/")
        #expect(missing.status == 1)
        #expect(missing.errors.contains("stat gone: No such file or directory"))
        #expect(place.targets() == ["/a"])
    }
}
