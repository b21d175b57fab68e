// The paths of the started programs.

import Glibc

func ownProgram() throws -> String {
    var path = [CChar](repeating: 0, count: 4096)
    let count = readlink("/proc/self/exe", &path, path.count)
    guard count > 0 else { throw BenchFailure(call: "readlink", on: "/proc/self/exe") }
    return String(decoding: path[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self)
}

/// The daemon's path: the given one, or next to this program.
func gatewayProgram(_ options: Options) throws -> String {
    if let named = options.gatewayProgram { return named }
    let own = try ownProgram()
    let path = "\(own.prefix(upTo: own.lastIndex(of: "/") ?? own.endIndex))/spoolgate"
    guard access(path, X_OK) == 0 else {
        throw BenchFailure("no \(path); build it, or use --spoolgate or --peers-only")
    }
    return path
}

/// `spoolgate-upload`, next to the daemon.
func clientProgram(_ options: Options) throws -> String {
    let gateway = try gatewayProgram(options)
    let directory = gateway.prefix(upTo: gateway.lastIndex(of: "/") ?? gateway.endIndex)
    return try absolutePath("\(directory)/spoolgate-upload")
}

/// Finds a program by path, or by name in PATH or an sbin directory.
func findProgram(_ name: String) throws -> String {
    if name.contains("/") { return name }
    let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin"
    let named = path.split(separator: ":").map { String($0) }
    for directory in named + ["/usr/sbin", "/usr/local/sbin"] {
        let candidate = "\(directory)/\(name)"
        if access(candidate, X_OK) == 0 { return candidate }
    }
    throw BenchFailure("no \(name) in PATH")
}

/// The nginx module that `make module` built, if any.
func builtModule() -> String? {
    guard let own = try? ownProgram() else { return nil }
    // .build/TRIPLE/release/spoolgate-bench
    let build = own.split(separator: "/").dropLast(3).joined(separator: "/")
    let path = "/\(build)/nginx-module/ngx_http_interim_module.so"
    return access(path, R_OK) == 0 ? path : nil
}

/// The absolute path of an existing file.
func absolutePath(_ path: String) throws -> String {
    guard let resolved = realpath(path, nil) else {
        throw BenchFailure(call: "realpath", on: path)
    }
    defer { free(resolved) }
    return String(cString: resolved)
}
