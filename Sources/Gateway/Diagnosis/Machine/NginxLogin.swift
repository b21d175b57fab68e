// The clients that nginx admits at the gateway's locations, and the owner that nginx passes for each.
//
// Pure, except for reading password files. Clients cannot detect most mistakes because an unverified name is accepted
// silently.

import SpoolgatePosix
import SpoolgateTextFormats

/// A file of `auth_basic_user_file`: user names and hashed passwords.
struct PasswordFile: Sendable, Equatable {
    var way: PathWay
    /// The user names; nil if this process cannot read the file.
    var names: [String]?

    private static let limit = 4 << 20

    init(way: PathWay, names: [String]?) {
        (self.way, self.names) = (way, names)
    }

    init(at path: String) {
        self.init(way: PathWay(to: path), names: nil)
        // `try?`: an unreadable file is not checked.
        names = (try? TextFile.read(path, limit: Self.limit)).map(Self.names)
    }

    /// Returns the name before the first colon of each line that also has a password.
    static func names(in text: String) -> [String] {
        text.split(whereSeparator: \.isNewline).compactMap { line in
            let parts = line.split(separator: ":", omittingEmptySubsequences: false)
            guard !line.hasPrefix("#"), parts.count > 1, !parts[0].isEmpty, !parts[1].isEmpty else {
                return nil
            }
            return String(parts[0])
        }
    }
}

/// The directives of a location that decide how its clients log in.
struct NginxLogin: Sendable {
    let place: NginxPlace
    /// The directive that passes `SPOOLGATE_OWNER`, if any.
    let owner: NginxDirective?
    private let realm: NginxDirective?
    private let file: NginxDirective?

    init(at place: NginxPlace) {
        self.place = place
        owner = place.value(of: "fastcgi_param", "SPOOLGATE_OWNER")
        realm = place.value(of: "auth_basic")
        file = place.value(of: "auth_basic_user_file")
    }

    var asksPassword: Bool { hasRealm && file != nil }

    private var hasRealm: Bool { realm.map { !$0.saysOff } ?? false }

    /// Returns the absolute path of the password file, or nil if there is no file or its path contains a variable.
    func passwordFile(below folder: String) -> String? {
        guard asksPassword, let path = file?.arguments.first, !path.contains("$") else {
            return nil
        }
        return path.hasPrefix("/") ? path : "\(folder)/\(path)"
    }

    // MARK: Findings

    func findings(_ password: PasswordFile?, workers: Set<Credentials>) -> [Finding] {
        if let halfLogin { return [halfLogin] }
        if let claimed { return [claimed] }
        return [letIn].compactMap { $0 }
            + [password.flatMap { unusable($0, workers) }].compactMap { $0 }
    }

    /// The finding if `auth_basic` is set without a password file.
    private var halfLogin: Finding? {
        guard let realm, hasRealm, file == nil else { return nil }
        return .failure(
            "login",
            "'\(realm.text)' at \(realm.place) has no auth_basic_user_file: nginx requires no password",
            [Self.fileLine]
        )
    }

    /// The finding if the owner is a name that nginx does not verify.
    private var claimed: Finding? {
        guard let owner, isClaimed(owner), !asksPassword, !hasOtherLogin else { return nil }
        let where_ =
            realm.map { "'\($0.text)' at \($0.place)" }
            ?? "no auth_basic at \(place.location.place)"
        return .failure(
            "login",
            "'\(owner.text)' at \(owner.place) accepts any name that a client claims: nginx requires no "
                + "password (\(where_))",
            [Fix.login + (realm.map { "   (in place of \($0.text) at \($0.place))" } ?? "")]
                + (file == nil ? [Self.fileLine] : [])
        )
    }

    /// The finding if `satisfy any` admits clients without a login.
    private var letIn: Finding? {
        guard let satisfy = place.value(of: "satisfy"), satisfy.arguments.first == "any" else {
            return nil
        }
        let allowed = place.values(of: "allow").compactMap(\.arguments.first)
        let request = place.value(of: "auth_request").flatMap { $0.saysOff ? nil : $0 }
        let others =
            (allowed.isEmpty ? [] : ["clients of \(allowed.joined(separator: ", "))"])
            + (asksPassword && request != nil ? ["clients that auth_request admits"] : [])
        guard let first = others.first, asksPassword || request != nil else { return nil }
        let fixes = ["satisfy all;   (in place of \(satisfy.text) at \(satisfy.place))"]
        if let owner, isClaimed(owner), asksPassword {
            return .failure(
                "login",
                "'\(satisfy.text)' at \(satisfy.place) admits \(first) without the password: any name "
                    + "they claim becomes the owner ('\(owner.text)')",
                fixes
            )
        }
        guard !allowed.isEmpty else { return nil }
        return .warning(
            "login",
            "'\(satisfy.text)' at \(satisfy.place) admits \(first) without a login: their uploads have "
                + "no owner",
            fixes + [
                "anonymous: refuse  (in spoolgate.yaml: then only clients with a login may upload)"
            ]
        )
    }

    /// Returns the finding if no login can succeed with this password file.
    private func unusable(_ password: PasswordFile, _ workers: Set<Credentials>) -> Finding? {
        guard let file else { return nil }
        let path = password.way.path
        let worker = workers.min { $0.user < $1.user }
        let group = SystemUser.name(ofGroup: worker?.mainGroup ?? 0)
        let shown = "'\(file.text)' at \(file.place)"
        let addUser = Fix.addUser("NAME", to: path)
        if password.way.isMissing {
            return .failure(
                "login",
                "\(shown): \(password.way.obstacle ?? path): nginx responds 403 to every login",
                [
                    "install -D -g \(worker == nil ? "www-data" : group) -m 640 /dev/null \(path.shellWord)",
                    addUser,
                ]
            )
        }
        guard let facts = password.way.last else { return nil }
        if facts.isDirectory {
            return .failure(
                "login",
                "\(shown): \(path) is a directory, not a password file",
                [Self.fileLine]
            )
        }
        // An unrelated nginx may also run on this machine.
        if let worker,
            workers.allSatisfy({ password.way.closed(to: $0) != nil || !$0.has(.read, to: facts) })
        {
            let user = SystemUser.name(ofUser: worker.user)
            if let directory = password.way.closed(to: worker) {
                return .failure(
                    "login",
                    "\(shown): nginx's user \(user) may not pass \(directory.path) "
                        + "(\(directory.description)): nginx responds 500 to every login",
                    ["chmod o+x \(directory.path.shellWord)"]
                )
            }
            return .failure(
                "login",
                "\(shown): nginx's user \(user) may not read \(path) (\(facts.description)): nginx responds "
                    + "500 to every login",
                ["chgrp \(group) \(path.shellWord) && chmod g+r \(path.shellWord)"]
            )
        }
        guard password.names?.isEmpty ?? false else { return nil }
        return .failure(
            "login",
            "\(shown): no line of \(path) has the form NAME:HASH: no login succeeds",
            [addUser]
        )
    }

    /// Returns the finding if the password file was read and does not contain a user name.
    func finding(forName name: String, _ password: PasswordFile?) -> Finding? {
        guard let names = password?.names, !names.isEmpty, !names.contains(where: { $0 == name }),
            let path = password?.way.path
        else { return nil }
        return .failure(
            "login",
            "\(path) has no line for '\(name)', the name in -H",
            [Fix.addUser(name, to: path)]
        )
    }

    /// Returns the finding if the location passes no owner, for a route whose settings require one.
    func findingOfRefusal(route: String) -> Finding? {
        guard owner == nil else { return nil }
        let path = place.location.arguments.joined(separator: " ")
        return .failure(
            "login",
            "location \(path) at \(place.location.place) passes no SPOOLGATE_OWNER, but routes.\(route) has "
                + "anonymous: refuse: every upload gets 403",
            [Fix.owner]
        )
    }

    /// Returns the finding if the location requires a password for CORS preflight requests.
    ///
    /// Preflight requests never contain credentials (Fetch, section 4.8), so pages of other origins could not upload.
    func findingOfPreflight(route: String) -> Finding? {
        guard let realm, asksPassword, !realm.arguments.contains(where: { $0.contains("$") }),
            place.value(of: "satisfy")?.arguments.first != "any"
        else { return nil }
        return .failure(
            "login",
            "'\(realm.text)' at \(realm.place) requires a password for the preflight of routes.\(route).cors, "
                + "but browsers send none: pages of other origins cannot upload",
            ["auth_basic $spoolgate_realm;   (in place of \(realm.text) at \(realm.place))"]
        )
    }

    // MARK: The source of the owner

    private static let fileLine = "auth_basic_user_file /etc/nginx/uploads.htpasswd;"

    /// Whether a module other than `auth_basic` authenticates clients; some also set `$remote_user`.
    private var hasOtherLogin: Bool {
        place.around.contains { block in
            (block.block ?? []).contains { directive in
                directive.name.hasPrefix("auth_") && !directive.name.hasPrefix("auth_basic")
                    && !directive.saysOff
            }
        }
    }

    /// Returns whether the value contains `$remote_user`, the name that a client claims, directly or through variables.
    private func isClaimed(_ directive: NginxDirective) -> Bool {
        directive.arguments.dropFirst().contains { isClaimed($0, depth: 0) }
    }

    private func isClaimed(_ text: String, depth: Int) -> Bool {
        guard depth < 8 else { return false }
        return Self.variables(in: text).contains { name in
            if name == "remote_user" { return true }
            return sources(of: name).contains { isClaimed($0, depth: depth + 1) }
        }
    }

    /// Returns the expressions from which `map` and `set` compute a variable.
    private func sources(of name: String) -> [String] {
        let variables = ["$" + name, "${\(name)}"]
        let maps = (place.around.last?.block ?? []).filter {
            $0.name == "map" && variables.contains($0.arguments.last ?? "")
        }
        let sets = place.around.flatMap { $0.block ?? [] }.filter {
            $0.name == "set" && variables.contains($0.arguments.first ?? "")
        }
        return maps.compactMap(\.arguments.first) + sets.compactMap(\.arguments.last)
    }

    private static func variables(in text: String) -> [String] {
        text.matches(of: /\$\{?(\w+)\}?/).map { String($0.1) }
    }
}
