// The command line; without options, `spoolgate-bench` measures everything.

enum Section: String, CaseIterable {
    case oneRequest = "A"
    case appends = "B"
    case smallUploads = "C"
    case offsetRetrieval = "D"
    case slowUploads = "E"
    case delivery = "F"
    case secureDelivery = "G"
    case smallDeliveries = "H"
    case smallSecureDeliveries = "I"
    case mediumUploads = "J"
    case clientUploads = "K"
}

/// How nginx's module writes content into the spool (`spool_receive`).
enum SpoolReceive: String {
    case on, worker, off
}

struct Options {
    var sections = Section.allCases
    /// The number of quiet rounds to measure.
    var rounds = 3
    var mostRounds: Int { isQuick ? rounds : 3 * rounds }
    /// The large upload's length in bytes.
    var largeLength: Int64 = 1 << 30
    /// The numbers of simultaneous slow uploads, one run for each.
    var slowCounts = [2_000]
    var slowSeconds = 20.0
    /// The seconds of one sample of the HEAD rate.
    var rateSeconds = 2.0
    var workers = 1
    /// The gateway's setting `promise`.
    var promise = "power-cut"
    /// Only the rows that need no spoolgate.
    var peersOnly = false
    /// Whether sizes are smaller than the targets'.
    var isQuick = false
    /// JSON lines instead of tables.
    var json = false
    /// A directory on the disk under test.
    var state = "./.run/bench"
    /// The daemon's path; nil: next to this program.
    var gatewayProgram: String?
    var nginxProgram = "nginx"
    /// The nginx module that forwards 104; nil: nginx runs without it.
    var module = builtModule()
    var spoolReceive = SpoolReceive.on
    /// Whether nginx's module writes content into the spool.
    var hasLane: Bool { module != nil && spoolReceive != .off }
    /// tusd's path; nil: not measured.
    var tusdProgram: String?

    static let help = """
        USAGE: spoolgate-bench [options]

        Compares spoolgate behind nginx with nginx's own ways to receive an upload and with tusd,
        on the same disk, through the same nginx process, in one run. Prints tables and then the
        project's targets. A missed target is reported, but is no failure: the exit status is 1 only
        if something failed (a wrong status, lost bytes, a program that did not start).

        OPTIONS:
          --only A,B,...    Only these sections:
                              A  one large upload in one request
                              B  one large upload in 64 parts
                              C  1000 uploads of 64 KiB by 16 clients
                              D  offset retrieval (HEAD)
                              E  many slow uploads at once
                              F  one large delivery to the upstream over http, compared with curl
                              G  the same over https
                              H  consecutive 64 KiB deliveries over http, compared with curl
                              I  the same over https
                              J  as C, with 256 KiB
                              K  one large upload by spoolgate-upload, compared with curl
          --rounds N        Measure until N rounds were quiet, rows taking turns (default 3), at
                            most 3 N rounds.
          --quick           64 MiB instead of 1 GiB, 200 slow uploads for 5 s, one round.
          --slow N[,N...]   Number of slow uploads (default 2000; the targets also use 9000).
          --workers N       nginx's worker processes (default 1).
          --promise WORD    The gateway's setting `promise`: power-cut (default) or process.
          --peers-only      Only the rows of nginx and tusd; needs no spoolgate.
          --json            JSON lines instead of tables.
          --state DIR       Working directory, on the disk under test (default ./.run/bench).
          --spoolgate PATH  The daemon (default: next to this program).
          --nginx PATH      nginx (default: found in PATH, then in /usr/sbin).
          --module PATH     ngx_http_interim_module.so, or none (default: the one that
                            `make module` built, if it exists).
          --spool-receive WORD  How nginx writes content into the spool: on (default; on a
                            thread pool), worker (in its worker process) or off.
          --tusd PATH       tusd 2, to measure it behind the same nginx.
          --help            This text.

        `spoolgate-bench sink` is the upstream that the benchmark starts.
        """

    /// Reads the arguments after the program's name; nil if they request help.
    static func parse(_ arguments: some Sequence<String>) throws -> Options? {
        var options = Options()
        var rounds: Int?
        var slowCounts: [Int]?
        var rest = Array(arguments)[...]
        while let name = rest.popFirst() {
            switch name {
            case "--help", "-h": return nil
            case "--quick": options.makeQuick()
            case "--peers-only": options.peersOnly = true
            case "--json": options.json = true
            case "--only": options.sections = try sections(value(of: name, &rest))
            case "--rounds": rounds = try count(of: name, value(of: name, &rest))
            case "--slow":
                slowCounts = []
                for part in try value(of: name, &rest).split(separator: ",") {
                    slowCounts?.append(try count(of: name, String(part)))
                }
            case "--workers": options.workers = try count(of: name, value(of: name, &rest))
            case "--promise":
                options.promise = try value(of: name, &rest)
                guard ["power-cut", "process"].contains(options.promise) else {
                    throw BenchFailure("--promise is power-cut or process")
                }
            case "--state": options.state = try value(of: name, &rest)
            case "--spoolgate": options.gatewayProgram = try value(of: name, &rest)
            case "--nginx": options.nginxProgram = try value(of: name, &rest)
            case "--spool-receive":
                guard let word = SpoolReceive(rawValue: try value(of: name, &rest)) else {
                    throw BenchFailure("--spool-receive is on, worker or off")
                }
                options.spoolReceive = word
            case "--module":
                let path = try value(of: name, &rest)
                options.module = path == "none" ? nil : try absolutePath(path)
            case "--tusd": options.tusdProgram = try value(of: name, &rest)
            default: throw BenchFailure("unknown option '\(name)'; see --help")
            }
        }
        options.rounds = rounds ?? options.rounds
        options.slowCounts = slowCounts ?? options.slowCounts
        return options
    }

    private mutating func makeQuick() {
        isQuick = true
        largeLength = 64 << 20
        slowCounts = [200]
        slowSeconds = 5
        rateSeconds = 0.5
        rounds = 1
    }

    private static func value(
        of name: String,
        _ rest: inout ArraySlice<String>
    ) throws -> String {
        guard let value = rest.popFirst() else { throw BenchFailure("\(name) needs a value") }
        return value
    }

    private static func count(of name: String, _ text: String) throws -> Int {
        guard let number = Int(text), number > 0 else {
            throw BenchFailure("\(name) needs a number above 0, not '\(text)'")
        }
        return number
    }

    private static func sections(_ text: String) throws -> [Section] {
        var wanted: [Section] = []
        for letter in text.split(separator: ",") {
            guard let section = Section(rawValue: letter.uppercased()) else {
                throw BenchFailure("--only accepts A to K, not '\(letter)'")
            }
            wanted.append(section)
        }
        return Section.allCases.filter(wanted.contains)
    }
}

extension Section {
    var isSecure: Bool { self == .secureDelivery || self == .smallSecureDeliveries }
}
