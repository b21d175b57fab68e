// Signals as values, taken by one thread; no code ever runs inside a signal handler.
//
// Invariant: `block` runs before the first thread starts, so that every thread inherits the mask and
// a signal can only be taken by `next`.

import Glibc

/// A request to the process from outside.
package enum Signal: Sendable, Equatable, CaseIterable {
    /// SIGTERM: end in good order.
    case terminate
    /// SIGINT: the same, from a terminal.
    case interrupt
    /// SIGHUP: read the settings again.
    case hangUp
    /// SIGUSR1: look through the queue at once.
    case user1
    /// SIGUSR2.
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

/// The process's signals, blocked in every thread and taken by one.
package struct Signals: Sendable {
    private static var set: sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for signal in Signal.allCases { sigaddset(&set, signal.number) }
        return set
    }

    /// Ignores SIGXFSZ in the whole process: a write beyond its limit of file sizes then fails with EFBIG.
    ///
    /// Call it first in every program that writes files. A child process gets the default back.
    package static func ignoreFileSizeLimit() { _ = Glibc.signal(SIGXFSZ, SIG_IGN) }

    /// Blocks the signals of `Signal` in the calling thread and in all it starts from now on, and
    /// ignores SIGPIPE and SIGXFSZ in the whole process.
    ///
    /// Call it first in the program.
    package static func block() -> Signals {
        var set = Signals.set
        pthread_sigmask(SIG_BLOCK, &set, nil)
        ignorePipe()
        ignoreFileSizeLimit()
        // Inherited as ignored, it would keep children from being waited for.
        _ = Glibc.signal(SIGCHLD, SIG_DFL)
        return Signals()
    }

    /// Lets SIGINT and SIGHUP end the process, as they do if nothing else is said, also where whoever
    /// started it had blocked them.
    package static func unblock() {
        var set = sigset_t()
        sigemptyset(&set)
        for signal in [Signal.interrupt, .hangUp] { sigaddset(&set, signal.number) }
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
    }

    /// Whether whoever started this process had it ignore a signal: `nohup`, or a shell in the background.
    ///
    /// A signal that is blocked is taken all the same.
    package static func isIgnored(_ signal: Signal) -> Bool {
        var action = sigaction()
        sigaction(signal.number, nil, &action)
        return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self)
            == unsafeBitCast(SIG_IGN, to: Int.self)
    }

    /// Waits for the next signal.
    ///
    /// One thread only.
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

    /// Calls `body`, which may install signal handlers of its own, and puts those of `Signal` back as
    /// they were; SIGPIPE is ignored afterwards.
    package static func keepingDispositions<R>(_ body: () -> R) -> R {
        var before: [(Int32, sigaction)] = []
        for signal in Signal.allCases {
            var action = sigaction()
            sigaction(signal.number, nil, &action)
            before.append((signal.number, action))
        }
        let result = body()
        for (number, action) in before {
            var action = action
            sigaction(number, &action, nil)
        }
        ignorePipe()
        return result
    }

    /// A write to a peer that is gone then fails with EPIPE instead.
    private static func ignorePipe() { _ = Glibc.signal(SIGPIPE, SIG_IGN) }
}
