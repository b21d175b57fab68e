// The kinds of setting values: how each is read, refused and written.
//
// Reading is strict: a value of the wrong kind or out of range is an error with its place.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

struct SettingsKind<Value>: Sendable {
    /// A description of valid values, for errors.
    var expected = "a single value"
    let read: @Sendable (SettingsValue) throws(SettingsError) -> Value
    let text: @Sendable (Value) -> String

    var optional: SettingsKind<Value?> {
        SettingsKind<Value?>(
            expected: expected,
            read: { value throws(SettingsError) in try read(value) },
            text: { $0.map(text) ?? "" }
        )
    }
}

extension SettingsKind {
    /// If `read` returns nil, the error says `refusal` or, if `refusal` is nil, that the text is not `expected`.
    private init(
        _ expected: String = "a single value",
        refusal: String? = nil,
        text: @escaping @Sendable (Value) -> String = { "\($0)" },
        read: @escaping @Sendable (String) -> Value?
    ) {
        self.expected = expected
        self.text = text
        self.read = { value throws(SettingsError) in
            let text = try value.scalar(else: "expected \(expected)")
            guard let read = read(text) else {
                throw value.fault("'\(text)'\(refusal ?? " is not \(expected)")")
            }
            return read
        }
    }

    /// `read` throws the reason if a text is not valid.
    private init(
        text: @escaping @Sendable (Value) -> String,
        read: @escaping @Sendable (String) throws(UpstreamTargetError) -> Value
    ) {
        self.text = text
        self.read = { value throws(SettingsError) in
            let text = try value.scalar(else: "expected a single value")
            do throws(UpstreamTargetError) {
                return try read(text)
            } catch {
                throw value.fault("'\(text)': \(error.reason)")
            }
        }
    }

    /// A list of values; a single value counts as one element.
    ///
    /// `kind` returns the kind of the next element, which may depend on the elements before it.
    private static func list<Element>(
        text: @escaping @Sendable ([Element]) -> String,
        of kind: @escaping @Sendable (_ before: [Element]) -> SettingsKind<Element>
    ) -> Self where Value == [Element] {
        Self(
            read: { value throws(SettingsError) in
                let words = "expected \(kind([]).expected), or a list of them"
                for item in value.listed { _ = try item.scalar(else: words) }
                var elements: [Element] = []
                for item in value.listed { elements.append(try kind(elements).read(item)) }
                return elements
            },
            text: text
        )
    }

    /// A mapping from names chosen by the operator to values, in the order of the file.
    private static func pairs<Pair>(
        _ expected: String,
        text: @escaping @Sendable (Pair) -> (name: String, value: String),
        read: @escaping @Sendable (_ name: String, _ text: String) -> Pair?
    ) -> Self where Value == [Pair] {
        Self(
            read: { value throws(SettingsError) in
                var pairs: [Pair] = []
                for entry in try value.entries(
                    else: "\(value.name) must be a mapping of names to values"
                ) {
                    let text = try entry.value.scalar(else: "expected \(expected)")
                    guard let pair = read(entry.key, text) else {
                        throw entry.value.fault("expected \(expected)")
                    }
                    pairs.append(pair)
                }
                return pairs
            },
            text: { pairs in
                let members = pairs.map(text).map { ($0.name, JSON.string($0.value)) }
                return members.isEmpty ? "" : JSON.object(members).text
            }
        )
    }

    private static func use(_ expected: String) -> String { " is not valid; use \(expected)" }

    private static func listText(_ texts: [String]) -> String {
        texts.isEmpty ? "" : JSON.texts(texts).text
    }

    // MARK: Numbers

    static func boolean() -> Self where Value == Bool {
        Self("true or false", refusal: use("true or false")) { Bool($0) }
    }

    static func integer(_ range: ClosedRange<Int>) -> Self where Value == Int {
        Self("a whole number from \(range.lowerBound) to \(range.upperBound)") { text in
            Int(text).flatMap { range.contains($0) ? $0 : nil }
        }
    }

    static func mode() -> Self where Value == UInt32 {
        Self("an octal mode such as \"0660\"", text: { "\"0\(String($0, radix: 8))\"" }) { text in
            text.count <= 4 ? UInt32(text, radix: 8) : nil
        }
    }

    static func size(_ range: ClosedRange<Int64>) -> Self where Value == Int64 {
        let least = ByteSize.text(range.lowerBound)
        let maximum = ByteSize.text(range.upperBound)
        return Self(
            "a size from \(least) to \(maximum), such as 64KiB or 16GiB",
            text: { ByteSize.text($0) }
        ) { text in
            ByteSize.read(text).flatMap { range.contains($0) ? $0 : nil }
        }
    }

    /// `range` is in seconds; zero is valid too if `allowsZero` is true.
    static func duration(_ range: ClosedRange<Int64>, allowsZero: Bool = false) -> Self
    where Value == Duration {
        Self(
            "\(allowsZero ? "0s or " : "")a duration from \(range.lowerBound)s to "
                + "\(range.upperBound)s, such as 30s or 24h",
            text: { DurationText.text($0) }
        ) { text in
            let range = Duration.seconds(range.lowerBound)...Duration.seconds(range.upperBound)
            return DurationText.read(text)
                .flatMap { range.contains($0) || allowsZero && $0 == .zero ? $0 : nil }
        }
    }

    static func seconds(_ range: ClosedRange<Int64>) -> Self where Value == Int64 {
        let kind = SettingsKind<Duration>.duration(range)
        return Self(
            read: { value throws(SettingsError) in try kind.read(value).components.seconds },
            text: { kind.text(.seconds($0)) }
        )
    }

    // MARK: Texts

    private static func text(
        _ expected: String,
        where isTaken: @escaping @Sendable (String) -> Bool
    ) -> Self where Value == String {
        Self(expected) { isTaken($0) ? $0 : nil }
    }

    static func text() -> Self where Value == String {
        Self("a text", refusal: " must not be empty") { $0.isEmpty ? nil : $0 }
    }

    static func path() -> Self where Value == String {
        text("an absolute path without control characters") { $0.isAbsolutePath }
    }

    static func node() -> Self where Value == String {
        let expected = "1 to 8 lower-case letters or digits"
        return Self(expected, refusal: use(expected)) {
            UploadResources.isNode($0.utf8) ? $0 : nil
        }
    }

    static func prefix() -> Self where Value == String {
        text("a path that begins and ends with /") {
            $0.hasPrefix("/") && $0.hasSuffix("/") && $0.count > 1
        }
    }

    static func fieldPrefix() -> Self where Value == String {
        text("the prefix of a field name, ending in -") {
            $0.hasSuffix("-") && $0.count > 1 && FieldPolicy.name($0 + "a") != nil
        }
    }

    static func word() -> Self where Value: RawRepresentable<String> & CaseIterable & Sendable {
        let words = Value.allCases.map(\.rawValue)
        let expected =
            words.count == 2
            ? words.joined(separator: " or ") : "one of \(words.joined(separator: ", "))"
        let refusal = words.count == 2 ? use(expected) : nil
        return Self(expected, refusal: refusal, text: { $0.rawValue }) { Value(rawValue: $0) }
    }

    /// Other settings may exclude some of the values (`RouteSettings.contradiction`).
    static func choice() -> Self where Value: RawRepresentable<String> & CaseIterable & Sendable {
        let words = Value.allCases.map(\.rawValue).joined(separator: ", ")
        return Self(refusal: " is not one of \(words)", text: { $0.rawValue }) {
            Value(rawValue: $0)
        }
    }

    static func digest() -> Self where Value == DigestAlgorithm? {
        let words = ["none"] + DigestAlgorithm.integrity.map(\.rawValue)
        let expected = "one of \(words.joined(separator: ", "))"
        return Self(expected, text: { $0?.rawValue ?? "none" }) { text in
            text == "none"
                ? .some(nil)
                : DigestAlgorithm.integrity.first { $0.rawValue == text }.map { .some($0) }
        }
    }

    static func command() -> Self where Value == [String] {
        list(text: { $0.count > 1 ? listText($0) : $0.first ?? "" }) { before in
            SettingsKind<String>(
                "a program's absolute path with arguments",
                refusal: before.isEmpty
                    ? " is not an absolute path without NUL" : " must not contain NUL"
            ) {
                !$0.contains("\0") && (!before.isEmpty || $0.isAbsolutePath) ? $0 : nil
            }
        }
    }

    // MARK: Addresses

    static func address() -> Self where Value == ListenAddress {
        Self(ListenAddress.forms, refusal: use(ListenAddress.forms), text: \.text) {
            ListenAddress($0)
        }
    }

    static func socket() -> Self where Value == String {
        Self("unix:/path", refusal: use("unix:/path"), text: { "unix:\($0)" }) { text in
            guard text.hasPrefix("unix:") else { return nil }
            let path = String(text.dropFirst(5))
            return path.isAbsolutePath ? path : nil
        }
    }

    static func destination() -> Self where Value == EventSettings.Destination {
        let expected = "journal or an absolute path"
        return Self(expected, refusal: use(expected), text: \.text) { text in
            text == "journal" ? .journal : text.isAbsolutePath ? .file(text) : nil
        }
    }

    static func service() -> Self where Value == ServiceURL {
        Self(text: \.text) { text throws(UpstreamTargetError) in try ServiceURL(text) }
    }

    static func origins() -> Self where Value == [String] {
        list(text: listText) { _ in
            .text(
                "\"*\" or an origin as browsers send it, such as https://app.example or "
                    + "http://localhost:5173: in lower case, without a trailing slash and without the "
                    + "scheme's default port"
            ) { $0 == CrossOrigin.anyOrigin || CrossOrigin.isOrigin($0) }
        }
    }

    static func places() -> Self where Value == [RedirectPlace] {
        list(text: { listText($0.map(\.text)) }) { _ in
            SettingsKind<RedirectPlace>(
                "a host, a path or both, such as login.example, /accounts/login or www.example/login",
                text: \.text
            ) { RedirectPlace($0) }
        }
    }

    /// The targets of an upstream, at least one.
    ///
    /// A single target is quoted only if it contains a space. Several are always quoted, because they may contain
    /// brackets.
    static func targets() -> Self where Value == [UpstreamTarget] {
        let kind = list { targets in
            let quoted = targets.map { JSON.string($0.text).text }
            guard targets.count < 2 else { return "[\(quoted.joined(separator: ", "))]" }
            let text = targets.first?.text ?? ""
            return text.contains(" ") ? quoted[0] : text
        } of: { before in
            SettingsKind<UpstreamTarget>(text: \.text) { text throws(UpstreamTargetError) in
                try UpstreamTarget(text, after: before)
            }
        }
        return Self(
            read: { value throws(SettingsError) in
                let targets = try kind.read(value)
                guard !targets.isEmpty else { throw value.fault("expected at least one target") }
                return targets
            },
            text: kind.text
        )
    }

    // MARK: Fields

    private static var decidable: String {
        "the name of a field, except those for connections, framing and uploads (Upload-*)"
    }

    private static func name(
        _ expected: String,
        refusal: String? = nil
    ) -> Self where Value == HTTPField.Name {
        Self(expected, refusal: refusal, text: \.rawName) {
            clientName($0).flatMap { FieldPolicy.name($0.rawName) }
        }
    }

    /// A field that the gateway may use to send data to the upstream.
    static func passingName() -> Self where Value == HTTPField.Name {
        name("the name of a field that is forwarded to the upstream, such as X-Request-Id")
    }

    static func names() -> Self where Value == [HTTPField.Name] {
        list(text: { listText($0.map(\.rawName)) }) { _ in
            .name(decidable, refusal: " is not allowed; use \(decidable)")
        }
    }

    /// The name of a client's field, with `-` for `_`: FastCGI has one name for both (RFC 3875 §4.1.18).
    private static func clientName(_ text: String) -> HTTPField.Name? {
        HTTPField.Name(text.replacing("_", with: "-"))
    }

    static func statuses(_ known: [Int]) -> Self where Value == [Int] {
        list(text: { $0.count > 1 ? "\($0)" : $0.first.map { "\($0)" } ?? "" }) { _ in
            let last = known.last.map { String($0) } ?? ""
            let expected =
                known.dropLast().map { String($0) }.joined(separator: ", ") + " or " + last
            return SettingsKind<Int>(expected, refusal: use(expected), text: { String($0) }) {
                text in known.first { String($0) == text }
            }
        }
    }

    static func anyNames() -> Self where Value == [HTTPField.Name] {
        list(text: { listText($0.map(\.rawName)) }) { _ in
            SettingsKind<HTTPField.Name>("the name of a field, such as X-Api-Key", text: \.rawName)
            {
                $0 == "*" ? nil : HTTPField.Name($0)
            }
        }
    }

    static func credentials() -> Self where Value == StoreCredentials {
        let expected = "environment or an absolute path without control characters"
        return Self(expected, refusal: use(expected), text: { $0.file ?? environment }) { text in
            text == environment ? .environment : text.isAbsolutePath ? .file(text) : nil
        }
    }

    private static var environment: String { "environment" }

    static func region() -> Self where Value == String {
        text("a region, such as eu-central-1: up to 63 lower-case letters, digits and hyphens") {
            (1...63).contains($0.utf8.count)
                && $0.utf8.allSatisfy {
                    $0.isDigit || (0x61...0x7a).contains($0) || $0 == UInt8(ascii: "-")
                }
        }
    }

    static func objectFields() -> Self where Value == [HTTPField] {
        pairs(
            "Cache-Control, Expires or an X-Amz- field that the gateway does not set, with a value of "
                + "ASCII characters",
            text: { ($0.name.rawName, $0.value) }
        ) { name, value in
            guard let name = HTTPField.Name(name), HTTPField.isValidValue(value) else { return nil }
            let field = HTTPField(name: name, value: value)
            return BucketSettings.takes(field) ? field : nil
        }
    }

    static func fields() -> Self where Value == [HTTPField] {
        pairs("\(decidable), with a value", text: { ($0.name.rawName, $0.value) }) {
            name,
            value in
            guard HTTPField.isValidValue(value) else { return nil }
            return FieldPolicy.name(name).map { HTTPField(name: $0, value: value) }
        }
    }

    static func constants() -> Self where Value == [ConstantField] {
        pairs("a text", text: { ($0.name, $0.value) }) { name, value in
            name.isEmpty ? nil : ConstantField(name: name, value: value)
        }
    }

    static func copies() -> Self where Value == [CopiedField] {
        pairs("the name of a field", text: { ($0.name, $0.source.rawName) }) { name, text in
            guard !name.isEmpty, let source = clientName(text) else { return nil }
            return CopiedField(name: name, source: source)
        }
    }

    static func aliases() -> Self where Value == [Int: Int] {
        let known = Dialect.versions
        let kind = SettingsKind<[(named: Int, served: Int)]>.pairs(
            "an unknown version, such as \(known.upperBound + 1), mapped to one of "
                + "\(known.lowerBound) to \(known.upperBound)",
            text: { ("\($0.named)", "\($0.served)") }
        ) { name, text in
            guard let named = Int(name), named > 0, !known.contains(named), let served = Int(text),
                known.contains(served)
            else { return nil }
            return (named, served)
        }
        return Self(
            read: { value throws(SettingsError) in
                try kind.read(value).reduce(into: [:]) { $0[$1.named] = $1.served }
            },
            text: { aliases in
                kind.text(aliases.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
            }
        )
    }
}
