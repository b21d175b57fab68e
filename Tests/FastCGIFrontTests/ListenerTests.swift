// The listener's sockets, and the process's signals and service manager.

import Foundation
import SpoolgateFastCGIFront
import SpoolgatePosix
import Testing

extension FrontTests {
    @Suite struct ListenerTests {
        private let path = "/tmp/listener-\(UUID().uuidString.prefix(13)).sock"

        private func open(_ address: ListenAddress) throws(SystemError) {
            _ = try Listener.open(address)
        }

        private func failure(_ address: ListenAddress) -> SystemError? {
            do throws(SystemError) {
                try open(address)
                return nil
            } catch {
                return error
            }
        }

        @Test("a socket file without a listener is replaced; the mode is set; it is removed")
        func stale() throws {
            do { _ = try Listener.open(.unix(path: path, mode: 0o600, group: nil)) }
            #expect(FileManager.default.fileExists(atPath: path))
            let group = try #require(getgrgid(getgid()))
            let listener = try Listener.open(
                .unix(path: path, mode: 0o660, group: String(cString: group.pointee.gr_name))
            )
            var status = stat()
            #expect(lstat(path, &status) == 0)
            #expect(status.st_mode & 0o777 == 0o660)
            #expect(status.st_gid == getgid())
            let client = try FastCGIClient(path)
            #expect(try listener.accept() != nil)
            withExtendedLifetime(client) {}
            listener.remove()
            #expect(!FileManager.default.fileExists(atPath: path))
        }

        @Test("a socket with a listener stays and is reported")
        func live() throws {
            let listener = try Listener.open(.unix(path: path, mode: 0o600, group: nil))
            let error = failure(.unix(path: path, mode: 0o600, group: nil))
            #expect(error?.errno == EADDRINUSE)
            #expect(error?.subject.contains("another process listens") == true)
            _ = try FastCGIClient(path)
            listener.remove()
        }

        @Test("another program's file is never removed")
        func replaced() throws {
            let listener = try Listener.open(.unix(path: path, mode: 0o600, group: nil))
            // Keeps the inode number from being reused.
            rename(path, path + ".old")
            #expect(FileManager.default.createFile(atPath: path, contents: nil))
            #expect(failure(.unix(path: path, mode: 0o600, group: nil))?.errno == EEXIST)
            listener.remove()
            #expect(FileManager.default.fileExists(atPath: path))
            unlink(path)
            unlink(path + ".old")
        }

        @Test("an address that cannot be bound is a clear error, and leaves no file")
        func errors() {
            let long = "/tmp/" + String(repeating: "x", count: 120)
            #expect(failure(.unix(path: "/nowhere/x", mode: 0, group: nil))?.errno == ENOENT)
            #expect(failure(.unix(path: long, mode: 0, group: nil))?.errno == ENAMETOOLONG)
            #expect(failure(.unix(path: path, mode: 0, group: "no-such-group"))?.errno == ENOENT)
            #expect(!FileManager.default.fileExists(atPath: path))
            #expect(failure(.tcp("9000"))?.errno == EINVAL)
            #expect(failure(.tcp("host.invalid:9000"))?.call == "getaddrinfo")
            #expect(failure(.inherited)?.call == "sd_listen_fds")
        }

        @Test(
            "TCP listens on IPv4 and IPv6 and on one port once",
            arguments: ["127.0.0.1", "[::1]"]
        )
        func tcp(_ host: String) throws {
            let port = 20_000 + Int(getpid()) % 10_000
            let listener = try Listener.open(.tcp("\(host):\(port)"))
            #expect(failure(.tcp("\(host):\(port)"))?.errno == EADDRINUSE)
            listener.stop()
            #expect(try listener.accept() == nil)
        }

        @Test("signals are values", arguments: Signal.allCases)
        func signals(_ signal: Signal) {
            let taken = Monitor<Signal?>(nil)
            let numbers: [Signal: Int32] = [
                .terminate: SIGTERM, .interrupt: SIGINT, .hangUp: SIGHUP, .user1: SIGUSR1,
                .user2: SIGUSR2,
            ]
            try? SpoolgatePosix.Thread.start(name: "signals") {
                let signals = Signals.block()
                // Only this thread, which blocks the signal.
                pthread_kill(pthread_self(), numbers[signal] ?? 0)
                let found = signals.next()
                taken.update { $0 = found }
            }
            #expect(taken.wait(until: .after(.seconds(300))) { $0 } == signal)
        }

        @Test("the service manager receives its own words", arguments: ["", "@"])
        func serviceManager(_ prefix: String) throws {
            let receiver = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
            defer {
                close(receiver)
                unlink(path)
            }
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            let bytes = (prefix.isEmpty ? [] : [0]) + Array(path.utf8)
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
            let size = 2 + bytes.count + (prefix.isEmpty ? 1 : 0)
            let bound = withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(receiver, $0, socklen_t(size))
                }
            }
            #expect(bound == 0)
            let manager = ServiceManager { _ in prefix + path }
            func received() -> String {
                var room = [UInt8](repeating: 0, count: 1000)
                let count = recv(receiver, &room, room.count, Int32(MSG_DONTWAIT))
                return String(decoding: room.prefix(max(0, count)), as: UTF8.self)
            }
            try manager.notify(.ready, .status("line\nREADY=0"))
            #expect(received() == "READY=1\nSTATUS=line READY=0")
            try manager.notify(.stopping)
            #expect(received() == "STOPPING=1")
            try manager.notify(.reloading)
            #expect(received().hasPrefix("RELOADING=1\nMONOTONIC_USEC="))
            try ServiceManager { _ in nil }.notify(.ready)
            #expect(received() == "")
        }
    }
}
