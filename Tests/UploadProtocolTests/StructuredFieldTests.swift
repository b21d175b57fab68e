// The HTTP working group's item vectors, applied to the readers of structured fields.
//
// An Integer or a Boolean must give its value; a malformed vector or another type gives nil ("ignored").

import Foundation
import HTTPTypes
import SpoolgateUploadProtocol
import Testing

/// One vector: raw field lines and their value.
struct Vector: Decodable, CustomTestStringConvertible, Sendable {
    enum Value: Decodable, Sendable, Equatable {
        case boolean(Bool)
        case integer(Int64)
        case other

        init(from decoder: any Decoder) throws {
            var items = try decoder.unkeyedContainer()
            if let boolean = try? items.decode(Bool.self) {
                self = .boolean(boolean)
            } else if let integer = try? items.decode(Int64.self) {
                self = .integer(integer)
            } else {
                self = .other
            }
        }
    }

    let name: String
    let raw: [String]
    let type: String
    let mustFail: Bool?
    let canFail: Bool?
    let value: Value?

    enum CodingKeys: String, CodingKey {
        case name, raw
        case type = "header_type"
        case mustFail = "must_fail"
        case canFail = "can_fail"
        case value = "expected"
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        name = try container.decode(String.self, forKey: .name)
        raw = try container.decode([String].self, forKey: .raw)
        type = try container.decode(String.self, forKey: .type)
        mustFail = try container.decodeIfPresent(Bool.self, forKey: .mustFail)
        canFail = try container.decodeIfPresent(Bool.self, forKey: .canFail)
        value =
            type == "item" && mustFail != true
            ? try container.decodeIfPresent(Value.self, forKey: .value) : nil
    }

    var testDescription: String { name }

    /// JSON does not distinguish a decimal without a fraction from an integer, but the line does.
    var exactValue: Value? {
        guard case .integer? = value, let first = raw.first else { return value }
        return first.prefix { $0 != ";" }.contains(".") ? .other : value
    }
}

@Suite("Structured fields")
struct StructuredFieldTests {
    static let files = [
        "binary", "boolean", "date", "display-string", "examples", "item", "number",
        "number-generated", "string", "token",
    ]

    static func vectors(_ file: String) throws -> [Vector] {
        let folder = try #require(Bundle.module.url(forResource: "Vectors", withExtension: nil))
        let data = try Data(contentsOf: folder.appendingPathComponent("\(file).json"))
        return try JSONDecoder().decode([Vector].self, from: data).filter { $0.type == "item" }
    }

    @Test("every item vector gives its value or is ignored", arguments: files)
    func vectors(file: String) throws {
        let vectors = try StructuredFieldTests.vectors(file)
        #expect(!vectors.isEmpty)
        for vector in vectors {
            let comment = Comment("\(file): \(vector.name)")
            let (integer, boolean) = read(vector.raw)
            if vector.canFail == true, integer == nil, boolean == nil { continue }
            switch vector.exactValue {
            case .boolean(let expected)?:
                #expect(boolean == expected && integer == nil, comment)
            case .integer(let expected)?:
                #expect(integer == expected && boolean == nil, comment)
            case .other?, nil:
                #expect(integer == nil && boolean == nil, comment)
            }
        }
    }

    @Test("the vectors exercise values of both types")
    func exercised() throws {
        let values = try StructuredFieldTests.files.flatMap(StructuredFieldTests.vectors)
            .compactMap(\.exactValue)
        #expect(values.count { if case .integer = $0 { true } else { false } } > 10)
        #expect(values.count { if case .boolean = $0 { true } else { false } } >= 2)
    }

    /// Reads one line as text, several as field lines.
    private func read(_ raw: [String]) -> (integer: Int64?, boolean: Bool?) {
        if let line = raw.first, raw.count == 1 {
            return (StructuredField.integer(line), StructuredField.boolean(line))
        }
        let fields = HTTPFields(raw.map { HTTPField(name: .uploadOffset, value: $0) })
        return (StructuredField.integer(.uploadOffset, in: fields), nil)
    }

    @Test("the longest integer is 15 digits", arguments: ["999999999999999", "000000000000007"])
    func longest(text: String) {
        #expect(StructuredField.integer(text) == Int64(text))
        #expect(StructuredField.integer("-" + text) == Int64(text).map { -$0 })
        #expect(StructuredField.integer("0" + text) == nil)
    }

    @Test("a repeated field is ignored regardless of its values", arguments: ["5", "", "6"])
    func repeated(second: String) {
        var fields: HTTPFields = [.uploadOffset: "5", .uploadDraftInteropVersion: "5"]
        #expect(StructuredField.integer(.uploadOffset, in: fields) == 5)
        #expect(Dialect(of: fields).interopVersion == 5)
        fields.append(HTTPField(name: .uploadOffset, value: second))
        fields.append(HTTPField(name: .uploadDraftInteropVersion, value: second))
        #expect(StructuredField.integer(.uploadOffset, in: fields) == nil)
        #expect(Dialect(of: fields) == .newest)
    }
}
