// libfcgi's part of a request: it takes the parameters apart.
//
// What comes from the web server is read and looked through before (RecordReader, RequestBeginning); libfcgi
// gets a clean begin with its parameters in a file in memory, which ends right behind them, and its streams are
// freed before any content is read. A pipe would not do: heads are larger than a pipe may be, and both its
// ends would be one thread's. libfcgi's own accept and close stay unused: its accept cannot be limited in
// time, and its close reads what a peer sends for as long as the peer sends.
//
// This file is the only one that uses members of libfcgi's structure below the line "Don't use anything below
// here": `ipcFd`, `keepConnection` and `detached`, by which it reads what others have opened. Invariant: the
// structure is allocated once in the thread that uses it and never moves, because libfcgi's streams point back
// to it.

import CSpoolgateFastCGI
import Glibc
import SpoolgatePosix

/// A reusable libfcgi request.
///
/// One thread only.
struct FastCGIRequest: ~Copyable {
    private let raw: UnsafeMutablePointer<FCGX_Request>

    /// Initialises libfcgi, whose signal handlers are undone, and what it reads from, once.
    /// - Throws: `SystemError` where it cannot be, or there is no descriptor or memory.
    static func prepare() throws(SystemError) {
        guard library == 0 else {
            throw SystemError(call: "FCGX_Init", subject: "libfcgi", errno: library)
        }
        try MemoryFiles.prepare()
    }

    private static let library: Int32 = Signals.keepingDispositions { FCGX_Init() }

    /// Allocates an idle request.
    init() {
        raw = .allocate(capacity: 1)
        FCGX_InitRequest(raw, -1, 0)
    }

    deinit {
        FCGX_Free(raw, 0)
        raw.deallocate()
    }

    /// Hands the parameters of a request over as libfcgi has them, in the order received.
    ///
    /// Before them comes libfcgi's own, `FCGI_ROLE`.
    ///
    /// - Parameters:
    ///   - beginning: what was received, with sound parameters only.
    ///   - body: given each parameter's bytes, which are gone when it returns.
    /// - Returns: false where libfcgi does not take the request up.
    /// - Throws: `SystemError` when there is no descriptor or memory left.
    func forEachParameter(
        of beginning: RequestBeginning,
        _ body: (_ name: ParameterBytes, _ value: ParameterBytes) -> Void
    ) throws(SystemError) -> Bool {
        let file = try MemoryFiles.take()
        try file.hold(beginning.recordsForLibrary)
        // libfcgi closes what it does not like to read, so this is its own until it has taken it.
        let number = file.release()
        FCGX_InitRequest(raw, -1, 0)
        raw.pointee.ipcFd = number
        raw.pointee.keepConnection = 1
        // Closing then is close(2) and no more.
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

/// Empty files in memory, shared by all threads: one is in use for some microseconds of a request only, and a
/// request that waits for its content holds none.
private enum MemoryFiles {
    private static let spare = Monitor<[Int32]>([])
    /// Files that are there from the start; more are made where more threads need one at once.
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
        // One that cannot be emptied would show its bytes to the next request.
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
