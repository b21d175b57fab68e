// spoolgate's two routes that keep uploads in a directory, as tusd does: one for each promise.

/// What the promises of a route that delivers into a directory survive.
enum Promise: String, CaseIterable {
    case powerCut = "power-cut"
    case process = "process"

    /// The location of the route.
    var location: String { self == .powerCut ? "/drop/" : "/drop-process/" }

    /// The row of uploads that are whole in one request and told by 104, so that they could be resumed.
    var toldRow: String { "spoolgate: told, dropped, \(rawValue)" }

    /// The row of uploads that clients of tus make whole in one request.
    var tusRow: String { "spoolgate: tus creations, dropped, \(rawValue)" }

    /// The row of uploads in parts.
    var partsRow: String { "spoolgate: 64 PATCHes, dropped, \(rawValue)" }
}

/// The fields of an upload that is whole in one request and whose client wants to be told where it is.
let toldFields = [
    (name: "Upload-Complete", value: "?1"), (name: "Upload-Draft-Interop-Version", value: "10"),
]
