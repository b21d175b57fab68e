// Field lines as a list for libcurl, in memory that the next request reuses.
//
// Invariant: no line contains a line end or a NUL byte, because fields with such bytes are refused.

import CSpoolgateCurl
package import HTTPTypes
import SpoolgateTextFormats

/// The field lines of one request.
package struct FieldLines: ~Copyable {
    private static let keptCapacity = 16 * 1024

    /// All lines, each terminated by a NUL byte.
    private var bytes = ByteBuilder()
    private var starts: [Int] = []
    private var nodes: [curl_slist] = []

    /// Removes all lines.
    package mutating func removeAll() {
        bytes.removeAll(keeping: Self.keptCapacity)
        starts.removeAll(keepingCapacity: true)
    }

    /// Adds `Name: value`, or libcurl's `Name;` for an empty value.
    package mutating func add(_ field: HTTPField) throws(CurlOptionError) {
        let start = bytes.count
        bytes.put(text: field.name.rawName)
        let breaks = field.withUnsafeBytesOfValue { value in
            if value.isEmpty {
                bytes.put(UInt8(ascii: ";"))
            } else {
                bytes.put(": ")
                bytes.put(value)
            }
            // The closure has no branch, so that the compiler can vectorise the loop.
            return value.reduce(0 as UInt8) { breaks, byte in
                breaks | (byte == 0 || byte == 0x0d || byte == 0x0a ? 1 : 0)
            }
        }
        guard breaks == 0 else {
            throw CurlOptionError(reason: "field \(field.name) contains a line end or NUL")
        }
        end(start)
    }

    /// Adds a literal line.
    ///
    /// A line with only a name and a colon keeps libcurl from adding that field.
    package mutating func add(_ line: StaticString) {
        let start = bytes.count
        bytes.put(line)
        end(start)
    }

    private mutating func end(_ start: Int) {
        bytes.put(0)
        starts.append(start)
    }

    /// Calls `body` with a list of all lines, valid until `body` returns, or with nil if no lines were added.
    mutating func withList<R>(_ body: (UnsafeMutablePointer<curl_slist>?) -> R) -> R {
        nodes.removeAll(keepingCapacity: true)
        return bytes.withMutableBytes { bytes in
            for start in starts {
                let line = UnsafeMutableRawPointer(bytes + start)
                nodes.append(curl_slist(data: line.assumingMemoryBound(to: CChar.self), next: nil))
            }
            return nodes.withUnsafeMutableBufferPointer { nodes in
                guard let first = nodes.baseAddress else { return body(nil) }
                for index in nodes.indices.dropLast() { nodes[index].next = first + index + 1 }
                return body(nodes.isEmpty ? nil : first)
            }
        }
    }
}
