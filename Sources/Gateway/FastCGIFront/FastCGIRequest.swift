// The part of libfcgi that is used: it parses the parameters of a request.
//
// libfcgi reads a validated beginning from a file in memory. A pipe would not do, because heads can be larger than a
// pipe and one thread would hold both ends. libfcgi's own accept has no timeout, and its close reads for as long as the
// peer sends, so neither is used.
//
// Only this file uses members of libfcgi's structure below "Don't use anything below here": `ipcFd`, `keepConnection`
// and `detached`, which make libfcgi read from a descriptor that it did not open. Invariant: the structure never leaves
// its thread and never moves, because libfcgi's streams point to it.

import CSpoolgateFastCGI
import Glibc
import SpoolgatePosix

/// A reusable libfcgi request, used by one thread.
struct FastCGIRequest: ~Copyable {
    private let raw: UnsafeMutablePointer<FCGX_Request>

    /// Initialises libfcgi, undoes its signal handlers, and creates the files it reads from; once per process.
    ///
    /// - Throws: `SystemError` if libfcgi fails, or if no descriptor or memory is left.
    static func prepare() throws(SystemError) {
        guard library == 0 else {
            throw SystemError(call: "FCGX_Init", subject: "libfcgi", errno: library)
        }
        try MemoryFiles.prepare()
    }

    private static let library: Int32 = Signals.keepingDispositions { FCGX_Init() }

    init() {
        raw = .allocate(capacity: 1)
        FCGX_InitRequest(raw, -1, 0)
    }

    deinit {
        FCGX_Free(raw, 0)
        raw.deallocate()
    }

    /// Calls `body` with each parameter in the order received, after libfcgi's own `FCGI_ROLE`.
    ///
    /// The parameters of `beginning` must be valid. The bytes passed to `body` are invalid after it returns.
    ///
    /// - Returns: false if libfcgi does not accept the request.
    /// - Throws: `SystemError` if no descriptor or memory is left.
    func forEachParameter(
        of beginning: RequestBeginning,
        _ body: (_ name: ParameterBytes, _ value: ParameterBytes) -> Void
    ) throws(SystemError) -> Bool {
        let file = try MemoryFiles.take()
        try file.hold(beginning.recordsForLibrary)
        // libfcgi closes a file that it cannot parse, so it owns the file until it has accepted the request.
        let number = file.release()
        FCGX_InitRequest(raw, -1, 0)
        raw.pointee.ipcFd = number
        raw.pointee.keepConnection = 1
        // Closing is then nothing but close(2).
        raw.pointee.detached = 1
        guard FCGX_Accept_r(raw) == 0 else { return false }
        defer {
            FCGX_Free(raw, 0)
            raw.pointee.ipcFd = -1
            MemoryFiles.giveBack(MemoryFile(owning: number))
        }
        var next = raw.pointee.envp
        while let place = next, let parameter = place.pointee {
            Self.split(parameter, body)
            next = place + 1
        }
        return true
    }

    private static func split(
        _ parameter: UnsafeMutablePointer<CChar>,
        _ body: (_ name: ParameterBytes, _ value: ParameterBytes) -> Void
    ) {
        guard let equals = strchr(parameter, Int32(UInt8(ascii: "="))) else { return }
        let name = UnsafeRawBufferPointer(start: parameter, count: equals - parameter)
        let value = UnsafeRawBufferPointer(start: equals + 1, count: strlen(equals + 1))
        body(name.bindMemory(to: UInt8.self), value.bindMemory(to: UInt8.self))
    }
}

/// Empty files in memory, shared by all threads; a request uses one for a few microseconds.
private enum MemoryFiles {
    private static let spare = Monitor<[Int32]>([])
    /// The number of files created at the start; more are created if more threads need one at once.
    private static let count = 4

    static func prepare() throws(SystemError) {
        while spare.updateQuietly({ $0.count }) < count { giveBack(try make()) }
    }

    static func take() throws(SystemError) -> MemoryFile {
        if let number = spare.updateQuietly({ $0.popLast() }) { return MemoryFile(owning: number) }
        return try make()
    }

    private static func make() throws(SystemError) -> MemoryFile {
        try MemoryFile(named: "parameters")
    }

    static func giveBack(_ file: consuming MemoryFile) {
        // A file that cannot be emptied must not be reused, because its bytes would become part of the next request.
        do throws(SystemError) { try file.clear() } catch { return }
        let number = file.release()
        let isKept = spare.updateQuietly { spare in
            guard spare.count < count else { return false }
            spare.append(number)
            return true
        }
        if !isKept { _ = MemoryFile(owning: number) }
    }
}
