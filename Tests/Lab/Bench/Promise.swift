// spoolgate's routes that keep uploads in a directory, as tusd does, one for each value of `promise`.

enum Promise: String, CaseIterable {
    case powerCut = "power-cut"
    case process = "process"

    var location: String { self == .powerCut ? "/drop/" : "/drop-process/" }

    /// The row of uploads in one request that are told by 104, and so could be resumed.
    var toldRow: String { "spoolgate: told, dropped, \(rawValue)" }

    /// The row of tus creations with all content.
    var tusRow: String { "spoolgate: tus creations, dropped, \(rawValue)" }

    var partsRow: String { "spoolgate: 64 PATCHes, dropped, \(rawValue)" }
}

/// The fields of an upload in one request that requests a 104 with the location.
let toldFields = [
    (name: "Upload-Complete", value: "?1"), (name: "Upload-Draft-Interop-Version", value: "10"),
]
