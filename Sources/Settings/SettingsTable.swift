// The settings as text, key by key, as `check` prints them and the pages list them.

import HTTPTypes
import Logging
package import Posix
import TextFormats
import UploadProtocol
import Upstream

extension Settings {
    /// Every setting's dotted key and its value as it would be written in the file, in the file's order.
    package var table: [(key: String, value: String)] {
        var table: [(key: String, value: String)] = [
            ("listen", listen.text),
            ("socket-mode", listen.modeText),
            ("socket-group", listen.group ?? ""),
            ("log-level", logLevel.rawValue),
            ("log-queries", "\(showsQueries)"),
            ("spool.directory", spoolDirectory),
            ("spool.reserve", ByteSize.text(spoolReserve)),
            ("spool.quota", ByteSize.text(spoolQuota)),
            ("spool.maximum-uploads", "\(maximumUploads)"),
        ]
        table += boundsTable
        table += [
            ("timeouts.stall", DurationText.text(stallTimeout)),
            ("timeouts.drain", DurationText.text(drainTimeout)),
            ("timeouts.in-use", DurationText.text(inUseTimeout)),
            ("delivery.maximum-concurrent", "\(maximumDeliveries)"),
            ("delivery.queue-run-interval", DurationText.text(queueRunInterval)),
            ("interim.progress-interval", DurationText.text(interim.progressInterval)),
            ("interim.progress-size", ByteSize.text(interim.progressSize)),
            ("interim.heartbeat", DurationText.text(interim.heartbeat)),
            (
                "interop-alias",
                SettingsText.pairs(
                    interopAliases.sorted { $0.key < $1.key }.map { ("\($0.key)", "\($0.value)") }
                )
            ),
            ("correlation-field", correlationField?.rawName ?? ""),
        ]
        table += events.table
        for (name, route) in routes.sorted(by: { $0.key < $1.key }) {
            table += route.table.map { ("routes.\(name).\($0.key)", $0.value) }
        }
        return table
    }

    private var boundsTable: [(key: String, value: String)] {
        func text(_ bound: Int?) -> String { bound.map { String($0) } ?? "" }
        return [
            ("threads.minimum-spare", text(minimumSpareThreads)),
            ("threads.maximum", text(maximumThreads)),
            ("threads.reserve", text(reserveThreads)),
            ("threads.maximum-waiting", text(maximumWaitingThreads)),
            ("clients.maximum-concurrent", text(clients.maximumConcurrent)),
            ("clients.maximum-waiting", text(clients.maximumWaiting)),
            ("clients.maximum-uploads", text(clients.maximumUploads)),
        ]
    }

    /// Keys whose change only a restart puts in force.
    package static let restartKeys = [
        "listen", "socket-mode", "socket-group", "log-level", "log-queries", "spool.directory",
        "spool.reserve",
        "spool.quota",
        "threads.minimum-spare", "threads.maximum", "threads.reserve", "timeouts.stall",
        "timeouts.drain",
    ]
}

extension RouteSettings {
    fileprivate var table: [(key: String, value: String)] {
        [
            ("upstream", upstream.targetsText),
            ("anonymous", anonymous?.rawValue ?? ""),
            ("upload-resources", uploadResources ?? ""),
            ("limits.max-size", ByteSize.text(limits.maxSize)),
            ("limits.min-size", ByteSize.text(limits.minSize)),
            ("limits.max-append-size", limits.maxAppendSize.map { ByteSize.text($0) } ?? ""),
            ("limits.min-append-size", ByteSize.text(limits.minAppendSize)),
            ("limits.max-age", DurationText.text(.seconds(limits.maxAge))),
            ("timeouts.connect", DurationText.text(upstream.connectTimeout)),
            ("timeouts.stall", DurationText.text(upstream.stallTimeout)),
            ("timeouts.response", DurationText.text(upstream.responseTimeout)),
            ("tls.ca", upstream.certificateAuthority ?? ""),
            ("tls.certificate", upstream.clientCertificate ?? ""),
            ("tls.key", upstream.clientKey ?? ""),
            ("reply", reply.rawValue),
            ("ordinary", ordinary.rawValue),
            ("queue.maximum-concurrent", queue.maximumConcurrent.map { "\($0)" } ?? ""),
            ("queue.minimum-backoff", DurationText.text(queue.minimumBackoff)),
            ("queue.maximum-backoff", DurationText.text(queue.maximumBackoff)),
            ("queue.lifetime", DurationText.text(queue.lifetime)),
            ("queue.failed-retention", DurationText.text(queue.failedRetention)),
            ("queue.maximum-hold-size", ByteSize.text(queue.maximumHoldSize)),
            ("max-response-size", ByteSize.text(maxResponseSize)),
            ("response-retention", DurationText.text(responseRetention)),
            ("honours-idempotency-key", "\(honoursIdempotencyKey)"),
        ] + formTable + fieldTable + authorization.table("authorize") + inspection.table
    }
}

extension ListenAddress {
    /// The address as it is written in the settings.
    package var text: String {
        switch self {
        case .unix(let path, _, _): "unix:\(path)"
        case .tcp(let address): "tcp:\(address)"
        case .inherited: "systemd"
        }
    }

    fileprivate var modeText: String {
        guard case .unix(_, let mode, _) = self else { return "" }
        return "\"0\(String(mode, radix: 8))\""
    }

    /// The group of a unix socket, where one is set.
    package var group: String? {
        guard case .unix(_, _, let group) = self else { return nil }
        return group
    }
}

extension UpstreamSettings {
    /// One target plain, where YAML takes it so; several as a list of quoted ones: paths and addresses
    /// may have brackets.
    fileprivate var targetsText: String {
        guard targets.count > 1 else {
            let text = targets.first?.text ?? ""
            return text.contains(" ") ? JSON.string(text).text : text
        }
        return "[\(targets.map { JSON.string($0.text).text }.joined(separator: ", "))]"
    }
}

extension UpstreamTarget {
    fileprivate var text: String {
        switch self {
        case .http(let base): base
        case .unix(let path): "unix:\(path)"
        case .directory(let path): "directory:\(path)"
        }
    }
}
