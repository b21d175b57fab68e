// The clients that nginx admits at a location of the gateway, and the owner that nginx passes for each.
//
// Pure, except for reading password files. Clients cannot detect most mistakes because an unverified name is accepted
// silently.

import SpoolgatePosix
import SpoolgateTextFormats

/// A file of `auth_basic_user_file`: user names and hashed passwords.
struct PasswordFile: Sendable, Equatable {
    var way: PathWay
    /// Whether a line has a name and a password; nil if this process cannot read the file.
    var hasEntry: Bool?

    static func read(_ path: String) -> PasswordFile {
        // `try?`: an unreadable file is not checked.
        let text = try? TextFile.read(path, limit: 4 << 20)
        return PasswordFile(way: PathWay(to: path), hasEntry: text.map(hasEntry))
    }

    static func hasEntry(in text: String) -> Bool {
        text.split(whereSeparator: \.isNewline).contains { line in
            let parts = line.split(separator: ":", omittingEmptySubsequences: false)
            return !line.hasPrefix("#") && parts.count > 1 && !parts[0].isEmpty && !parts[1].isEmpty
        }
    }
}

/// The directives of a location that decide how its clients log in.
struct NginxLogin: Evidence, Sendable {
    var check: String { "login" }
    private let place: NginxPlace
    /// The directive that passes `SPOOLGATE_OWNER`, if any.
    private let owner: NginxDirective?
    private let realm: NginxDirective?
    private let file: NginxDirective?

    private static let fileLine = "auth_basic_user_file /etc/nginx/uploads.htpasswd;"

    init(at place: NginxPlace) {
        self.place = place
        owner = place.value(of: "fastcgi_param", "SPOOLGATE_OWNER")
        realm = place.value(of: "auth_basic")
        file = place.value(of: "auth_basic_user_file")
    }

    private var hasRealm: Bool { realm.map { !$0.saysOff } ?? false }

    /// Returns the absolute path of the password file, or nil if there is no file or its path contains a variable.
    func passwordFile(below folder: String) -> String? {
        guard hasRealm, let path = file?.arguments.first, !path.contains("$") else { return nil }
        return path.hasPrefix("/") ? path : "\(folder)/\(path)"
    }

    // MARK: Findings

    /// The finding about the login, or nil if the login is complete or not used.
    func finding(workers: Set<Credentials>) -> Finding? {
        halfLogin ?? claimed ?? place.passwords.flatMap { unusable($0, workers) }
    }

    /// The finding if `auth_basic` is set without a password file.
    private var halfLogin: Finding? {
        guard let realm, hasRealm, file == nil else { return nil }
        return failure(
            "'\(realm.text)' at \(realm.place) has no auth_basic_user_file: nginx requires no password",
            Self.fileLine
        )
    }

    /// The finding if the owner is a name that nginx does not verify.
    private var claimed: Finding? {
        guard let owner, owner.arguments.last == "$remote_user", !hasRealm, !hasOtherLogin else {
            return nil
        }
        let where_ =
            realm.map { "'\($0.text)' at \($0.place)" }
            ?? "no auth_basic at \(place.location.place)"
        return failure(
            "'\(owner.text)' at \(owner.place) accepts any name that a client claims: nginx requires no "
                + "password (\(where_))",
            [Fix.login + (realm.map { "   (in place of \($0.text) at \($0.place))" } ?? "")]
                + (file == nil ? [Self.fileLine] : [])
        )
    }

    /// Whether another module authenticates clients; some also set `$remote_user`.
    private var hasOtherLogin: Bool {
        place.around.flatMap { $0.block ?? [] }.contains {
            $0.name.hasPrefix("auth_") && !$0.name.hasPrefix("auth_basic") && !$0.saysOff
        }
    }

    /// Returns the finding if no login can succeed with this password file.
    private func unusable(_ password: PasswordFile, _ workers: Set<Credentials>) -> Finding? {
        guard let file else { return nil }
        let path = password.way.path
        let worker = workers.min { $0.user < $1.user }
        let group = SystemUser.name(ofGroup: worker?.group ?? 0)
        let shown = "'\(file.text)' at \(file.place)"
        let addUser = Fix.addUser("NAME", to: path)
        if password.way.isMissing {
            return failure(
                "\(shown): \(password.way.obstacle ?? path): nginx responds 403 to every login",
                [
                    "install -D -g \(worker == nil ? "www-data" : group) -m 640 /dev/null \(path.shellWord)",
                    addUser,
                ]
            )
        }
        // An unrelated nginx may also run on this machine.
        if let worker, let facts = password.way.last,
            workers.allSatisfy({ !$0.has(.read, to: facts) })
        {
            return failure(
                "\(shown): nginx's user \(SystemUser.name(ofUser: worker.user)) may not read \(path) "
                    + "(\(facts.description)): nginx responds 500 to every login",
                "chgrp \(group) \(path.shellWord) && chmod g+r \(path.shellWord)"
            )
        }
        guard password.hasEntry == false else { return nil }
        let text = "\(shown): no line of \(path) has the form NAME:HASH: no login succeeds"
        return failure(text, addUser)
    }

    /// Returns the finding if the location passes no owner, for a route whose settings require one.
    func findingOfRefusal(route: String) -> Finding? {
        guard owner == nil else { return nil }
        return failure(
            "location \(place.words) at \(place.location.place) passes no SPOOLGATE_OWNER, but "
                + "routes.\(route) has anonymous: refuse: every upload gets 403",
            Fix.owner
        )
    }

    /// Returns the finding if the location requires a password for CORS preflight requests.
    ///
    /// Preflight requests never contain credentials (Fetch, section 4.8), so pages of other origins could not upload.
    func findingOfPreflight(route: String) -> Finding? {
        guard let realm, hasRealm, file != nil, !realm.text.contains("$") else { return nil }
        return failure(
            "'\(realm.text)' at \(realm.place) requires a password for the preflight of routes.\(route).cors, "
                + "but browsers send none: pages of other origins cannot upload",
            "auth_basic $spoolgate_realm;   (in place of \(realm.text) at \(realm.place))"
        )
    }
}
