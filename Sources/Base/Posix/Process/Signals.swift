// Signals as values, received by one thread; no code runs in a signal handler.

import Glibc

/// A request to the process by signal.
package enum Signal: Sendable, Equatable, CaseIterable {
    /// SIGTERM: shut down in an orderly way.
    case terminate
    /// SIGINT, such as Ctrl-C: shut down in an orderly way.
    case interrupt
    /// SIGHUP: read the settings again.
    case hangUp
    /// SIGUSR1: attempt all deferred deliveries now.
    case user1
    /// SIGUSR2: ignored.
    case user2

    fileprivate var number: Int32 {
        switch self {
        case .terminate: SIGTERM
        case .interrupt: SIGINT
        case .hangUp: SIGHUP
        case .user1: SIGUSR1
        case .user2: SIGUSR2
        }
    }
}

/// The process's signals, blocked in all threads and received by one.
package struct Signals: Sendable {
    private static var set: sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for signal in Signal.allCases { sigaddset(&set, signal.number) }
        return set
    }

    /// Ignores SIGXFSZ, so that a write beyond the file size limit fails with EFBIG.
    ///
    /// Every program that writes files must call this function first. Child processes start with the default effect.
    package static func ignoreFileSizeLimit() { _ = Glibc.signal(SIGXFSZ, SIG_IGN) }

    /// Blocks the signals of `Signal` in this thread and its future threads; ignores SIGPIPE and SIGXFSZ.
    ///
    /// Call this function before any thread starts, so that only `next` can receive a signal.
    package static func block() -> Signals {
        var set = Signals.set
        pthread_sigmask(SIG_BLOCK, &set, nil)
        ignorePipe()
        ignoreFileSizeLimit()
        // If SIGCHLD were inherited as ignored, the process could not wait for its children.
        _ = Glibc.signal(SIGCHLD, SIG_DFL)
        return Signals()
    }

    /// Unblocks SIGINT and SIGHUP, so that these signals end the process even if its parent blocked them.
    package static func unblock() {
        var set = sigset_t()
        sigemptyset(&set)
        for signal in [Signal.interrupt, .hangUp] { sigaddset(&set, signal.number) }
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
    }

    /// Whether the process was started with a signal ignored, for example, by `nohup`.
    ///
    /// `next` receives a blocked signal even if the signal is ignored.
    package static func isIgnored(_ signal: Signal) -> Bool {
        unsafeBitCast(disposition(of: signal).__sigaction_handler.sa_handler, to: Int.self)
            == unsafeBitCast(SIG_IGN, to: Int.self)
    }

    private static func disposition(of signal: Signal) -> sigaction {
        var action = sigaction()
        sigaction(signal.number, nil, &action)
        return action
    }

    /// Waits for and returns the next signal.
    ///
    /// Only one thread may wait.
    package func next() -> Signal {
        while true {
            var set = Signals.set
            var number: Int32 = 0
            if sigwait(&set, &number) == 0,
                let signal = Signal.allCases.first(where: { $0.number == number })
            {
                return signal
            }
        }
    }

    /// Calls `body`, which may install signal handlers, then restores the dispositions of `Signal` and ignores SIGPIPE.
    package static func keepingDispositions<R>(_ body: () -> R) -> R {
        let before = Signal.allCases.map { ($0.number, disposition(of: $0)) }
        let result = body()
        for (number, action) in before {
            var action = action
            sigaction(number, &action, nil)
        }
        ignorePipe()
        return result
    }

    /// Ignores SIGPIPE, so that a write to a closed peer fails with EPIPE.
    private static func ignorePipe() { _ = Glibc.signal(SIGPIPE, SIG_IGN) }
}
