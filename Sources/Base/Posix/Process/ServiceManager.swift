// Telling the service manager how the service is: the datagrams of sd_notify(3), without libsystemd.
//
// Nothing is read back. Invariant: without a service manager every call does nothing.

import CSpoolgateLinux
import Glibc

/// The service manager that started this process, if one did and wants to be told.
package struct ServiceManager: Sendable {
    /// `NOTIFY_SOCKET`; nil: nobody to tell.
    private let address: [UInt8]?
    /// How often it wants to hear that the service works, at the latest; nil: it does not.
    package let watchdog: Duration?

    /// What the service manager can be told.
    package enum State: Sendable, Equatable {
        /// Started, or settings read again.
        case ready
        /// Reading its settings again; `ready` follows.
        case reloading
        /// About to end.
        case stopping
        /// Works still.
        case alive
        /// A line for people, shown by `systemctl status`.
        case status(String)
    }

    /// Whether there is anybody to tell.
    package var isThere: Bool { address != nil }

    /// Finds the service manager by `NOTIFY_SOCKET`, a path or `@` and an abstract name, and what it wants by
    /// `WATCHDOG_USEC` and `WATCHDOG_PID`.
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

    /// Tells the states, in one datagram.
    /// - Throws: `SystemError` when the datagram could not be sent; the service goes on without.
    package func tell(_ states: State...) throws(SystemError) {
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
        // A line break would begin another assignment.
        case .status(let line):
            "STATUS=" + String(line.map { $0.isNewline ? " " : $0 })
        }
    }
}
