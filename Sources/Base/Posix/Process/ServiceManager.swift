// Reports the service's state with the datagrams of sd_notify(3), without libsystemd.
//
// Invariant: without a service manager, every call does nothing.

import CSpoolgateLinux
import Glibc

/// The service manager, if any, that started this process and asked for reports.
package struct ServiceManager: Sendable {
    /// The socket address from `NOTIFY_SOCKET`, or nil to send no reports.
    private let address: [UInt8]?
    /// The maximum interval between `alive` reports, or nil if no such reports are expected.
    package let watchdog: Duration?

    /// A reported state.
    package enum State: Sendable, Equatable {
        /// The service has started, or has read its settings again.
        case ready
        /// The service is reading its settings again; `ready` follows.
        case reloading
        case stopping
        case alive
        /// A text that `systemctl status` shows.
        case status(String)
    }

    package var isThere: Bool { address != nil }

    /// Reads `NOTIFY_SOCKET` (a path, or `@` and an abstract name), `WATCHDOG_USEC` and `WATCHDOG_PID`.
    package init(environment: (String) -> String? = Listener.processEnvironment) {
        let isMeant = environment("WATCHDOG_PID").map { $0 == String(getpid()) } ?? true
        let interval = environment("WATCHDOG_USEC").flatMap { Int64($0) } ?? 0
        watchdog = isMeant && interval > 0 ? .microseconds(interval) : nil
        guard let value = environment("NOTIFY_SOCKET"), let first = value.utf8.first,
            value.utf8.count > 1, first == UInt8(ascii: "/") || first == UInt8(ascii: "@")
        else {
            address = nil
            return
        }
        var bytes = Array(value.utf8)
        if first == UInt8(ascii: "@") { bytes[0] = 0 }
        address = bytes
    }

    /// Reports the states in one datagram.
    ///
    /// The service can continue if an error is thrown.
    package func notify(_ states: State...) throws(SystemError) {
        guard let address else { return }
        let text = Array(states.map(Self.text).joined(separator: "\n").utf8)
        let result = address.withUnsafeBufferPointer { path in
            path.withMemoryRebound(to: CChar.self) {
                spoolgate_unix_send($0.baseAddress, $0.count, text, text.count)
            }
        }
        try SystemError.check(result, "sendto", on: "NOTIFY_SOCKET")
    }

    private static func text(_ state: State) -> String {
        switch state {
        case .ready: "READY=1"
        case .reloading: "RELOADING=1\nMONOTONIC_USEC=\(Deadline.now / 1_000)"
        case .stopping: "STOPPING=1"
        case .alive: "WATCHDOG=1"
        // A line break would start a new assignment.
        case .status(let line):
            "STATUS=" + String(line.map { $0.isNewline ? " " : $0 })
        }
    }
}
