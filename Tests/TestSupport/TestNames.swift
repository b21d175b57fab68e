// Host names in `.neighbour.test` that exist only in this process, while a test says so.
//
// The process's own `getaddrinfo`, which libcurl finds before the C library's, resolves them and forwards other
// lookups. Invariant: a name without an address is unknown at once, without a query to a name server.

import Glibc
import Synchronization

/// The test names.
package enum TestNames {
    package static let suffix = ".neighbour.test"

    fileprivate static let known = Mutex<Set<String>>([])

    /// Gives a name the address 127.0.0.1, or removes it.
    package static func set(_ name: String, isKnown: Bool) {
        known.withLock { known in
            if isKnown { known.insert(name) } else { known.remove(name) }
        }
    }
}

private typealias AddressLookUp =
    @convention(c) (
        UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<addrinfo>?,
        UnsafeMutablePointer<UnsafeMutablePointer<addrinfo>?>?
    ) -> Int32

/// The C library's `getaddrinfo`.
private let systemLookUp: AddressLookUp? = {
    // RTLD_NEXT: the next definition after this one.
    guard let found = dlsym(UnsafeMutableRawPointer(bitPattern: -1), "getaddrinfo") else {
        return nil
    }
    return unsafeBitCast(found, to: AddressLookUp.self)
}()

@_cdecl("getaddrinfo")
package func lookUpAddress(
    _ node: UnsafePointer<CChar>?,
    _ service: UnsafePointer<CChar>?,
    _ hints: UnsafePointer<addrinfo>?,
    _ result: UnsafeMutablePointer<UnsafeMutablePointer<addrinfo>?>?
) -> Int32 {
    guard let systemLookUp else { return EAI_FAIL }
    guard let node else { return systemLookUp(node, service, hints, result) }
    let name = String(cString: node)
    guard name.hasSuffix(TestNames.suffix) else {
        return systemLookUp(node, service, hints, result)
    }
    guard TestNames.known.withLock({ $0.contains(name) }) else { return EAI_NONAME }
    return systemLookUp("127.0.0.1", service, hints, result)
}
