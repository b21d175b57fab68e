// The clients that nginx lets in at a location of the gateway, and the owner that it passes for them, by its files.
//
// Pure, but for reading files of passwords. A client sees little of a login mistake: if the file is missing, nginx answers
// 403; if it cannot be read, 500; and it takes a name that is not verified in silence.

import SpoolgatePosix
import SpoolgateTextFormats

/// A file of names and passwords, as `auth_basic_user_file` names it.
struct PasswordFile: Sendable, Equatable {
    /// The way to it.
    var way: PathWay
    /// The names in it; nil: this process cannot read it.
    var names: [String]?

    private static let limit = 4 << 20

    /// Makes it of its parts.
    init(way: PathWay, names: [String]?) {
        (self.way, self.names) = (way, names)
    }

    /// Looks at a file.
    init(at path: String) {
        self.init(way: PathWay(to: path), names: nil)
        // `try?`: a file that this process cannot read is not judged.
        names = (try? TextFile.read(path, limit: Self.limit)).map(Self.names)
    }

    /// The names in a file: the text before the first colon of each line that has a password behind it.
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

/// The login at one location.
struct NginxLogin: Sendable {
    /// The location.
    let place: NginxPlace
    /// `SPOOLGATE_OWNER`; nil: none is passed.
    let owner: NginxDirective?
    private let realm: NginxDirective?
    private let file: NginxDirective?

    /// Reads the directives in force at a location.
    init(at place: NginxPlace) {
        self.place = place
        owner = place.value(of: "fastcgi_param", "SPOOLGATE_OWNER")
        realm = place.value(of: "auth_basic")
        file = place.value(of: "auth_basic_user_file")
    }

    /// Whether a password is asked for: nginx needs both directives for that.
    var asksPassword: Bool { hasRealm && file != nil }

    private var hasRealm: Bool { realm.map { !$0.saysOff } ?? false }

    /// The path of the file of passwords; nil: there is none, or a variable names it.
    func passwordFile(below folder: String) -> String? {
        guard asksPassword, let path = file?.arguments.first, !path.contains("$") else {
            return nil
        }
        return path.hasPrefix("/") ? path : "\(folder)/\(path)"
    }

    // MARK: Findings

    /// The faults of the login.
    ///
    /// - Parameters:
    ///   - password: the file of passwords; nil: there is none, or it was not looked at.
    ///   - workers: nginx's workers, each kind once.
    /// - Returns: empty if no fault is known.
    func findings(_ password: PasswordFile?, workers: Set<Credentials>) -> [Finding] {
        if let halfLogin { return [halfLogin] }
        if let claimed { return [claimed] }
        return [letIn].compactMap { $0 }
            + [password.flatMap { unusable($0, workers) }].compactMap { $0 }
    }

    /// A password that nginx does not ask for, because one of the two directives is missing.
    private var halfLogin: Finding? {
        guard let realm, hasRealm, file == nil else { return nil }
        return .failure(
            "login",
            "'\(realm.text)' at \(realm.place) has no auth_basic_user_file: nginx requires no password",
            [Self.fileLine]
        )
    }

    /// An owner that nginx does not verify.
    private var claimed: Finding? {
        guard let owner, isClaimed(owner), !asksPassword, !hasOtherLogin else { return nil }
        let where_ =
            realm.map { "'\($0.text)' at \($0.place)" }
            ?? "no auth_basic at \(place.location.place)"
        return .failure(
            "login",
            "'\(owner.text)' at \(owner.place) accepts any name that a client claims: nginx requires no "
                + "password (\(where_))",
            [Mend.login + (realm.map { "   (in place of \($0.text) at \($0.place))" } ?? "")]
                + (file == nil ? [Self.fileLine] : [])
        )
    }

    /// Clients that are let in by another condition than the login.
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
        let mends = ["satisfy all;   (in place of \(satisfy.text) at \(satisfy.place))"]
        if let owner, isClaimed(owner), asksPassword {
            return .failure(
                "login",
                "'\(satisfy.text)' at \(satisfy.place) admits \(first) without the password: any name "
                    + "they claim becomes the owner ('\(owner.text)')",
                mends
            )
        }
        guard !allowed.isEmpty else { return nil }
        return .warning(
            "login",
            "'\(satisfy.text)' at \(satisfy.place) admits \(first) without a login: their uploads have "
                + "no owner",
            mends + [
                "anonymous: refuse  (in spoolgate.yaml: then only clients with a login may upload)"
            ]
        )
    }

    /// A file of passwords with which no login succeeds.
    private func unusable(_ password: PasswordFile, _ workers: Set<Credentials>) -> Finding? {
        guard let file else { return nil }
        let path = password.way.path
        let worker = workers.min { $0.user < $1.user }
        let group = SystemUser.name(ofGroup: worker?.mainGroup ?? 0)
        let shown = "'\(file.text)' at \(file.place)"
        let addUser = Mend.addUser("NAME", to: path)
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
        // Another nginx may run here that has nothing to do with it.
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

    /// The fault of a name that a client logs in with; nil: none is known.
    func finding(forName name: String, _ password: PasswordFile?) -> Finding? {
        guard let names = password?.names, !names.isEmpty, !names.contains(where: { $0 == name }),
            let path = password?.way.path
        else { return nil }
        return .failure(
            "login",
            "\(path) has no line for '\(name)', the name in -H",
            [Mend.addUser(name, to: path)]
        )
    }

    /// The fault of a location that passes no owner, if the settings refuse clients without one; nil: it passes one.
    func findingOfRefusal(route: String) -> Finding? {
        guard owner == nil else { return nil }
        let path = place.location.arguments.joined(separator: " ")
        return .failure(
            "login",
            "location \(path) at \(place.location.place) passes no SPOOLGATE_OWNER, but routes.\(route) has "
                + "anonymous: refuse: every upload gets 403",
            [Mend.owner]
        )
    }

    /// The fault of a location that asks a browser for a password before it sends a page's request; nil: it does not.
    ///
    /// A preflight request never has credentials (Fetch, section 4.8), so pages of other origins cannot upload.
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

    // MARK: Whose word the owner is

    private static let fileLine = "auth_basic_user_file /etc/nginx/uploads.htpasswd;"

    /// Whether another module of nginx verifies who a client is: some of them set $remote_user, too.
    private var hasOtherLogin: Bool {
        place.around.contains { block in
            (block.block ?? []).contains { directive in
                directive.name.hasPrefix("auth_") && !directive.name.hasPrefix("auth_basic")
                    && !directive.saysOff
            }
        }
    }

    /// Whether a directive's value is made of the name that a client claims.
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

    /// The sources of a variable: those of a `map` of the http block, or of `set`.
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

    /// The names of the variables in a text.
    private static func variables(in text: String) -> [String] {
        text.matches(of: /\$\{?(\w+)\}?/).map { String($0.1) }
    }
}
