// Checks the files and directories in the settings, as the user of this process.
//
// Only metadata is read: nothing is created, opened for writing or connected to.

import SpoolgateCurl
import SpoolgateDelivery
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

struct SettingsFaults {
    /// One sentence per fault, with the setting's key.
    private(set) var sentences: [String] = []
    private let user: SystemUser
    private let makesDirectories: Bool

    /// Checks all paths as `user`, who must be the user of this process.
    ///
    /// The daemon creates the socket of `listen` if `bindsItself`, and missing directories if `makesDirectories`.
    init(_ settings: Settings, as user: SystemUser, bindsItself: Bool, makesDirectories: Bool) {
        self.user = user
        self.makesDirectories = makesDirectories
        if bindsItself, case .unix(let path, _, let group) = settings.listen {
            require(.place, PathAccess.parent(of: path), "listen")
            if let group { requireGroup(group) }
        }
        if bindsItself, let path = settings.adminPath {
            require(.place, PathAccess.parent(of: path), "admin-listen")
        }
        if let sentence = spoolFault(settings.spoolDirectory) {
            sentences.append("spool.directory: \(sentence)")
        }
        for (name, route) in settings.routes.sorted(by: { $0.key < $1.key }) {
            require(route, "routes.\(name)")
        }
        require(settings.events.webhook, "events.webhook")
        if case .file(let path) = settings.events.destination {
            requireLog(path, "events.to")
        }
    }

    private mutating func require(_ route: RouteSettings, _ key: String) {
        for target in route.upstream.targets { require(target, "\(key).upstream") }
        if let store = route.upstream.serverStore {
            let setting = "\(key).\(type(of: store).keySetting)"
            if requireFile(store.credentials(in: route.upstream)?.file, setting),
                let fault = store.keyFault(route.upstream)
            {
                sentences.append("\(setting): \(fault)")
            }
        }
        require(route.upstream.tls, key)
        require(route.authorization, "\(key).authorize")
        if let program = route.inspection.command.first {
            require(.program, program, "\(key).inspect.command")
        }
        guard route.form == .path else { return }
        if let directory = route.path.directory {
            require(.sharedDirectory, directory, "\(key).path.directory")
        }
        if requireFile(route.path.keyFile, "\(key).path.key-file"), let fault = route.keyFault {
            sentences.append("\(key).path.key-file: \(fault)")
        }
    }

    private mutating func require(_ target: UpstreamTarget, _ key: String) {
        switch target {
        case .unix(let path): require(.socket, path, key)
        case .store(let store):
            if let path = store.directory { require(.sharedDirectory, path, key) }
        case .http: break
        }
    }

    private mutating func require(_ service: ServiceSettings, _ key: String) {
        if let target = service.url?.target { require(target, "\(key).url") }
        require(service.tls, key)
    }

    private mutating func require(_ files: TLSFiles, _ key: String) {
        requireFile(files.authorities, "\(key).tls.ca")
        requireFile(files.certificate, "\(key).tls.certificate")
        requireFile(files.key, "\(key).tls.key")
    }

    @discardableResult
    private mutating func requireFile(_ path: String?, _ key: String) -> Bool {
        guard let path else { return true }
        return require(.file, path, key)
    }

    /// Adds a sentence and returns false if the user cannot use the path.
    @discardableResult
    private mutating func require(_ use: PathUse, _ path: String, _ key: String) -> Bool {
        let fault = PathFault(user: user, use: use, path: path)
        do throws(PathObstacle) {
            let facts = try PathAccess.require(use.rights, to: path)
            guard facts.isDirectory == use.isDirectory else {
                guard use.isDirectory else {
                    sentences.append("\(key): \(path) is a directory; use the path of a file")
                    return false
                }
                throw .notDirectory(facts)
            }
            return true
        } catch {
            if case .missing = error {
                // The program that listens on the socket may be started later.
                if use == .socket { return true }
                if use.isDirectory, makesDirectories, canMake(path) { return true }
            }
            sentences.append("\(key): \(fault.sentence(error))")
            return false
        }
    }

    /// Returns whether the user can create a missing directory, including its parents.
    private func canMake(_ path: String) -> Bool {
        let parent = PathAccess.parent(of: path)
        do throws(PathObstacle) {
            _ = try PathAccess.require([.write, .search], to: parent)
            return true
        } catch {
            guard case .missing = error, parent != path else { return false }
            return canMake(parent)
        }
    }

    private mutating func requireGroup(_ name: String) {
        guard let group = SystemUser.group(named: name) else {
            sentences.append("socket-group: unknown group '\(name)'; groupadd --system \(name)")
            return
        }
        guard !user.isRoot, !SystemUser.isMember(ofGroup: group) else { return }
        sentences.append(
            "socket-group: user \(user.name) is not a member of group '\(name)' and cannot assign "
                + "the socket to it; usermod -aG \(name) \(user.name)"
        )
    }

    /// Adds a sentence unless the user can append to a file or, if it is missing, create it.
    private mutating func requireLog(_ path: String, _ key: String) {
        do throws(PathObstacle) {
            _ = try PathAccess.require([], to: path)
        } catch {
            if case .missing = error {
                require(.place, PathAccess.parent(of: path), key)
                return
            }
        }
        require(.log, path, key)
    }

    // MARK: The spool

    /// Returns why a directory cannot be the user's spool; nil if it is a spool, is empty or can be created.
    private func spoolFault(_ path: String) -> String? {
        let fault = PathFault(user: user, use: .ownDirectory, path: path)
        do throws(PathObstacle) {
            let facts = try PathAccess.require(.all, to: path)
            guard facts.isDirectory else { throw .notDirectory(facts) }
            let isOwn = facts.owner == user.number || user.isRoot
            return isOwn ? faultInside(path, fault) : fault.sentence(notOwn: facts)
        } catch .missing(_, isLast: true) {
            do throws(PathObstacle) {
                _ = try PathAccess.require(PathUse.place.rights, to: PathAccess.parent(of: path))
                return nil
            } catch {
                return fault.sentence(notMade: error)
            }
        } catch {
            return fault.sentence(error)
        }
    }

    /// Returns why a directory that the user owns cannot be a spool; nil if it is a spool or empty.
    private func faultInside(_ path: String, _ fault: PathFault) -> String? {
        do {
            let names = try Directory(path: path).names()
            if names.isEmpty { return nil }
            if !user.isRoot {
                for name in names.sorted() {
                    let facts = try PathAccess.require([], to: "\(path)/\(name)")
                    if facts.owner != user.number {
                        return fault.sentence(notOwn: facts, in: path)
                    }
                }
            }
            _ = try Spool(existing: path)
            return nil
        } catch let error as SpoolError {
            return error.sentence
        } catch let obstacle as PathObstacle {
            return fault.sentence(obstacle)
        } catch {
            return "\(error)"
        }
    }
}

extension Settings {
    /// One sentence for each route whose settings do not decide who may upload.
    var openDoors: [String] {
        routes.sorted { $0.key < $1.key }
            .filter { $0.value.anonymous == nil && $0.value.authorization.url == nil }
            .map { name, route in
                let maximum = ByteSize.text(route.limits.maxSize)
                let room =
                    spoolQuota == 0
                    ? "until only spool.reserve is free on the disk (spool.quota is 0)"
                    : "until spool.quota (\(ByteSize.text(spoolQuota))) is reached"
                return
                    "routes.\(name): no setting decides who may upload; unless nginx does, every "
                    + "client can send uploads of up to \(maximum) each, \(room). Require a login in nginx "
                    + "and set anonymous: refuse, or set authorize.url, or set anonymous: allow if "
                    + "this is intended"
            }
    }
}
