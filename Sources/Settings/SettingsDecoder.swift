// A settings file becomes Settings, strictly: one table of keys, kinds and ranges.

import HTTPTypes
import Logging
package import Posix
import UploadProtocol
import Upstream

extension Settings {
    /// The largest settings file that is read.
    private static let fileLimit = 1 << 20

    /// Reads a settings file.
    ///
    /// - Throws: `SettingsFault.unreadable` if the file cannot be read, `.wrong` with line and column if
    ///   it is not what settings must be.
    package static func load(_ path: String) throws(SettingsFault) -> Settings {
        let text: String
        do {
            text = try TextFile.read(path, limit: fileLimit)
        } catch {
            throw .unreadable(error)
        }
        do throws(SettingsError) {
            try requireUTF8(text, file: path)
            return try Settings(text, file: path)
        } catch {
            throw .wrong(error)
        }
    }

    /// Refuses a file with bytes that are no UTF-8, of which reading made U+FFFD: a path that
    /// differs from what was written would be used in silence.
    private static func requireUTF8(_ text: String, file: String) throws(SettingsError) {
        guard let scalars = text.unicodeScalars.firstIndex(of: "\u{FFFD}") else { return }
        let offset = text.utf8.distance(from: text.startIndex, to: scalars)
        throw SettingsError(
            file: file,
            place: SourcePlace(of: offset, in: text.utf8),
            reason: "this is not UTF-8; save the file so"
        )
    }

    /// Decodes the text of a settings file; what it does not name keeps its default, but for the routes
    /// and their upstreams: a file has those that it names.
    package init(_ text: String, file: String) throws(SettingsError) {
        self.init()
        var root = try SettingsSection(
            YAMLDocument.root(of: text, file: file),
            file: file,
            path: ""
        )
        try decodeListener(&root)
        var spool = try root.section("spool")
        spoolDirectory = try spool.path("directory") ?? spoolDirectory
        spoolReserve = try spool.size("reserve", in: 0...(1 << 50)) ?? spoolReserve
        spoolQuota = try spool.size("quota", in: 0...(1 << 50)) ?? spoolQuota
        maximumUploads =
            try spool.integer("maximum-uploads", in: 0...100_000_000) ?? maximumUploads
        try spool.finish()
        var threads = try root.section("threads")
        minimumSpareThreads =
            try threads.integer("minimum-spare", in: 1...1024) ?? minimumSpareThreads
        maximumThreads = try threads.integer("maximum", in: 1...65_536) ?? maximumThreads
        reserveThreads = try threads.integer("reserve", in: 1...4096) ?? reserveThreads
        maximumWaitingThreads = try threads.integer("maximum-waiting", in: 0...65_536)
        try threads.finish()
        clients = try ClientSettings(root.section("clients"))
        var timeouts = try root.section("timeouts")
        stallTimeout = try timeouts.duration("stall", seconds: 1...86_400) ?? stallTimeout
        drainTimeout = try timeouts.duration("drain", seconds: 0...86_400) ?? drainTimeout
        inUseTimeout = try timeouts.duration("in-use", seconds: 1...3_600) ?? inUseTimeout
        try timeouts.finish()
        var delivery = try root.section("delivery")
        maximumDeliveries =
            try delivery.integer("maximum-concurrent", in: 1...4096) ?? maximumDeliveries
        queueRunInterval =
            try delivery.duration("queue-run-interval", seconds: 1...86_400) ?? queueRunInterval
        try delivery.finish()
        interim = try InterimRate(root.section("interim"))
        interopAliases = try root.interopAliases()
        correlationField = try root.correlationField()
        events = try EventSettings(root.section("events"))
        var named = try root.section("routes")
        routes = [:]
        for (name, section) in try named.namedSections() {
            routes[name] = try RouteSettings(section)
        }
        if routes.isEmpty {
            var missing = RouteSettings()
            missing.upstream.targets = []
            routes[RouteSettings.defaultName] = missing
        }
        try root.finish()
    }

    private mutating func decodeListener(_ root: inout SettingsSection) throws(SettingsError) {
        let address =
            try root.value("listen", expecting: ListenAddress.forms) { ListenAddress($0) } ?? listen
        let mode = try root.value(
            "socket-mode",
            expecting: "an octal mode such as \"0660\""
        ) { text in text.count <= 4 ? UInt32(text, radix: 8) : nil }
        let group = try root.text("socket-group")
        listen = address.with(mode: mode, group: group)
        let levels = Logger.Level.allCases.map(\.rawValue)
        logLevel =
            try root.value("log-level", expecting: "one of \(levels.joined(separator: ", "))") {
                Logger.Level(rawValue: $0)
            } ?? logLevel
        showsQueries = try root.boolean("log-queries") ?? showsQueries
    }
}

extension SettingsSection {
    /// The name of a field that may hold anything of the gateway's own making.
    fileprivate mutating func correlationField() throws(SettingsError) -> HTTPField.Name? {
        try value(
            "correlation-field",
            expecting: "a field name that passes to the upstream, such as X-Request-Id"
        ) { text in
            FieldPolicy.name(text)
        }
    }

    fileprivate mutating func interopAliases() throws(SettingsError) -> [Int: Int] {
        let known = Dialect.versions
        let expecting =
            "a version that is not known here, such as \(known.upperBound + 1), with one of "
            + "\(known.lowerBound) to \(known.upperBound)"
        let pairs = try pairs("interop-alias", expecting: expecting) {
            name,
            text -> (named: Int, served: Int)? in
            guard let named = Int(name), named > 0, !known.contains(named), let served = Int(text),
                known.contains(served)
            else { return nil }
            return (named, served)
        }
        return (pairs ?? []).reduce(into: [:]) { $0[$1.named] = $1.served }
    }
}

/// Why there are no settings.
package enum SettingsFault: Error, Sendable, Equatable, CustomStringConvertible {
    /// The file cannot be read.
    case unreadable(SystemError)
    /// The file says something that settings cannot be.
    case wrong(SettingsError)

    /// One line for the operator.
    package var description: String {
        switch self {
        case .unreadable(let error): "cannot read the settings: \(error)"
        case .wrong(let error): error.description
        }
    }
}

extension ListenAddress {
    static let forms = "unix:/path, tcp:host:port or systemd"

    /// Reads `unix:/path`, `tcp:host:port` (`tcp:[::1]:9000`) or `systemd`; nil for anything else.
    package init?(_ text: String) {
        if text == "systemd" {
            self = .inherited
        } else if text.hasPrefix("unix:/") {
            self = .unix(path: String(text.dropFirst(5)), mode: 0o660, group: nil)
        } else if text.hasPrefix("tcp:"), let colon = text.lastIndex(of: ":"),
            let port = UInt16(text[text.index(after: colon)...]), port > 0
        {
            let address = text.dropFirst(4)
            guard address.startIndex < colon else { return nil }
            self = .tcp(String(address))
        } else {
            return nil
        }
    }

    /// The same address; a unix socket with this mode and group, where they are given.
    fileprivate func with(mode: UInt32?, group: String?) -> ListenAddress {
        guard case .unix(let path, let oldMode, let oldGroup) = self else { return self }
        return .unix(path: path, mode: mode ?? oldMode, group: group ?? oldGroup)
    }
}

extension ClientSettings {
    fileprivate init(_ section: SettingsSection) throws(SettingsError) {
        self.init()
        var section = section
        maximumConcurrent = try section.integer("maximum-concurrent", in: 0...65_536)
        maximumWaiting = try section.integer("maximum-waiting", in: 0...65_536)
        maximumUploads =
            try section.integer("maximum-uploads", in: 0...100_000_000) ?? maximumUploads
        try section.finish()
    }
}

extension InterimRate {
    fileprivate init(_ section: SettingsSection) throws(SettingsError) {
        self.init()
        var section = section
        progressInterval =
            try section.duration("progress-interval", seconds: 1...3_600) ?? progressInterval
        progressSize = try section.size("progress-size", in: 0...(1 << 40)) ?? progressSize
        heartbeat =
            try section.duration("heartbeat", seconds: 1...3_600, allowsZero: true) ?? heartbeat
        try section.finish()
    }
}

extension RouteSettings {
    fileprivate init(_ section: SettingsSection) throws(SettingsError) {
        self.init()
        var section = section
        try decodeUpstream(&section)
        uploadResources = try section.value(
            "upload-resources",
            expecting: "a path that begins and ends with /"
        ) { $0.hasPrefix("/") && $0.hasSuffix("/") && $0.count > 1 ? $0 : nil }
        try decodeLimits(&section)
        maxResponseSize =
            try section.size("max-response-size", in: 0...(64 << 20)) ?? maxResponseSize
        responseRetention =
            try section.duration("response-retention", seconds: 60...31_536_000)
            ?? responseRetention
        let replies = Reply.allCases.map(\.rawValue).joined(separator: " or ")
        reply = try section.value("reply", expecting: replies) { Reply(rawValue: $0) } ?? reply
        let words = AnonymousUploads.allCases.map(\.rawValue).joined(separator: " or ")
        anonymous = try section.value("anonymous", expecting: words) {
            AnonymousUploads(rawValue: $0)
        }
        queue = try QueuePolicy(section.section("queue"))
        authorization = try ServiceSettings(section.section("authorize"))
        inspection = try InspectionSettings(section.section("inspect"))
        honoursIdempotencyKey =
            try section.boolean("honours-idempotency-key") ?? honoursIdempotencyKey
        try decodeForm(&section)
        try decodeOrdinary(&section)
        try decodeFields(&section)
        try section.finish()
    }

    private mutating func decodeUpstream(_ section: inout SettingsSection) throws(SettingsError) {
        let targets = try section.values("upstream", reason: \.reason) {
            text,
            before throws(UpstreamTargetError) in try UpstreamTarget(text, after: before)
        }
        upstream.targets = targets ?? []
        var timeouts = try section.section("timeouts")
        upstream.connectTimeout =
            try timeouts.duration("connect", seconds: 1...3_600) ?? upstream.connectTimeout
        upstream.stallTimeout =
            try timeouts.duration("stall", seconds: 1...86_400) ?? upstream.stallTimeout
        upstream.responseTimeout =
            try timeouts.duration("response", seconds: 1...86_400) ?? upstream.responseTimeout
        try timeouts.finish()
        var tls = try section.section("tls")
        upstream.certificateAuthority = try tls.path("ca")
        upstream.clientCertificate = try tls.path("certificate")
        upstream.clientKey = try tls.path("key")
        try tls.finish()
    }

    private mutating func decodeLimits(_ section: inout SettingsSection) throws(SettingsError) {
        let sizes = 1...UploadLimits.mostSize
        var section = try section.section("limits")
        limits.maxSize = try section.size("max-size", in: sizes) ?? limits.maxSize
        limits.minSize =
            try section.size("min-size", in: 0...sizes.upperBound) ?? limits.minSize
        limits.maxAppendSize = try section.size("max-append-size", in: sizes)
        // Above it, no append but the last could be right.
        let mostAppend = limits.maxAppendSize ?? sizes.upperBound
        limits.minAppendSize =
            try section.size("min-append-size", in: 0...mostAppend) ?? limits.minAppendSize
        if let age = try section.duration("max-age", seconds: 60...31_536_000) {
            limits.maxAge = age.components.seconds
        }
        try section.finish()
    }
}
