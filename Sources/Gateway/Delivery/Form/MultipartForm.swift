// The bytes of multipart/form-data content around one file (RFC 7578), as browsers write them.
//
// Pure: the caller provides the boundary. Invariant: names and values cannot add lines to a part's header section, and
// the file is the last part.

/// A form that ends with a file.
package struct MultipartForm: Sendable, Equatable {
    package var contentType: String
    package var before: [UInt8]
    package var after: [UInt8]

    /// Writes the bytes before and after the file.
    ///
    /// - Parameters:
    ///   - boundary: must be 1 to 60 letters and digits that no client can predict.
    ///   - fields: the names and values of the fields before the file, in this order.
    ///   - file: the name of the file's field, the file's name, and its media type.
    package init(
        boundary: String,
        fields: [(name: String, value: String)],
        file: (field: String, name: String, type: String)
    ) {
        contentType = "multipart/form-data; boundary=\(boundary)"
        var before = ""
        for field in fields {
            before += "--\(boundary)\r\nContent-Disposition: form-data; "
            before += "name=\"\(Self.quotable(field.name))\"\r\n\r\n\(field.value)\r\n"
        }
        before += "--\(boundary)\r\nContent-Disposition: form-data; "
        before += "name=\"\(Self.quotable(file.field))\"; filename=\"\(Self.quotable(file.name))\""
        before += "\r\nContent-Type: \(Self.oneLine(file.type))\r\n\r\n"
        self.before = Array(before.utf8)
        after = Array("\r\n--\(boundary)--\r\n".utf8)
    }

    /// Escapes the characters that would end the quotes or the line (HTML, "multipart form data").
    private static func quotable(_ name: String) -> String {
        let escapes: [Unicode.Scalar: String] = ["\"": "%22", "\r": "%0D", "\n": "%0A"]
        return name.unicodeScalars.map { escapes[$0] ?? String($0) }.joined()
    }

    private static func oneLine(_ value: String) -> String {
        String(value.unicodeScalars.filter { $0.value >= 0x20 && $0.value != 0x7f })
    }
}

/// Names of form fields, compared in the way that programs read them.
package enum FormFieldName {
    /// The variable name that a program may derive from a field name.
    ///
    /// Names with different keys are different fields. The key is the part before the first bracket, in lower case,
    /// with `_` for all but letters and digits.
    package static func key(_ name: String) -> String {
        let head = name.utf8.drop { $0 == UInt8(ascii: " ") }.prefix { $0 != UInt8(ascii: "[") }
        let key = head.map { byte -> UInt8 in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"): byte
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): byte | 32
            default: byte < 0x80 ? UInt8(ascii: "_") : byte
            }
        }
        return String(decoding: key, as: UTF8.self)
    }
}
