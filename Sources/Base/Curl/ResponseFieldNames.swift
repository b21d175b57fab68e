// Common response field names, created once and looked up by a line's bytes.
//
// Invariant: a name keeps the spelling of the line.

import HTTPTypes
import SpoolgateUploadProtocol

enum ResponseFieldNames {
    /// Returns the field name with these bytes, or nil if the bytes are not a valid name.
    static func name(_ bytes: UnsafeRawBufferPointer) -> HTTPField.Name? {
        if bytes.count < byLength.count {
            for known in byLength[bytes.count] where bytes.elementsEqual(known.bytes) {
                return known.name
            }
        }
        return HTTPField.Name(String(decoding: bytes, as: UTF8.self))
    }

    private struct Known {
        let bytes: [UInt8]
        let name: HTTPField.Name

        init(_ text: String) {
            bytes = Array(text.utf8)
            name = .made(text)
        }
    }

    private static let byLength: [[Known]] = {
        let names = [
            "Accept-Ranges", "Access-Control-Allow-Origin", "Age", "Allow", "Cache-Control",
            "Connection", "Content-Disposition", "Content-Encoding", "Content-Language",
            "Content-Length", "Content-Security-Policy", "Content-Type", "Date", "ETag", "Expires",
            "Keep-Alive", "Last-Modified", "Link", "Location", "Pragma", "Referrer-Policy",
            "Retry-After", "Server", "Set-Cookie", "Strict-Transport-Security",
            "Transfer-Encoding", "Vary", "Via", "WWW-Authenticate", "X-Content-Type-Options",
            "X-Frame-Options", "X-Powered-By", "X-Request-Id",
        ]
        var byLength: [[Known]] = []
        // HTTP/1.1 servers in front of HTTP/2 applications often write lower case.
        for name in names + names.map({ $0.lowercased() }) {
            while byLength.count <= name.utf8.count { byLength.append([]) }
            byLength[name.utf8.count].append(Known(name))
        }
        return byLength
    }()
}
