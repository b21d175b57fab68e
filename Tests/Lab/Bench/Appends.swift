// Section B: one large upload in 64 parts on one kept-alive connection.

import SpoolgateTestSupport

enum Appends {
    static let parts: Int64 = 64
    static let davRow = "64 dav PUTs"
    static let syncedDavRow = "64 dav PUTs, fdatasync each"
    static let receiveRow = "spoolgate: 64 PATCHes, received only"
    static let deliverRow = "spoolgate: 64 PATCHes, delivered"
    static let tusdRow = "tusd: 64 PATCHes"

    static func run(_ options: Options, on stage: Stage) -> SectionResult {
        let length = options.largeLength
        let rows = [
            Row(name: davRow, behind: .nothing) { _ in
                try davPuts(length, stage, synced: false)
            },
            Row(name: syncedDavRow, behind: .nothing) { _ in
                try davPuts(length, stage, synced: true)
            },
            Row(name: receiveRow, behind: .gateway) { round in
                let connection = try Connection(to: stage.address)
                let (upload, _) = try append(
                    length,
                    "/files/parts-\(round)",
                    connection,
                    last: false
                )
                return Outcome {
                    try upload.requireOffset(length)
                    try upload.cancel()
                }
            },
            Row(name: deliverRow, behind: .gateway) { round in
                let connection = try Connection(to: stage.address)
                let (_, response) = try append(
                    length,
                    "/files/whole-\(round)",
                    connection,
                    last: true
                )
                return Outcome {
                    let whole = Request("PATCH", "the last part", length: length)
                    try requireCount(response, whole)
                }
            },
        ]
        let kept =
            Promise.allCases.map { promise in
                Row(name: promise.partsRow, behind: .gateway) { round in
                    let connection = try Connection(to: stage.address)
                    _ = try append(length, "\(promise.location)\(round)", connection, last: true)
                    return keptFile(ofLength: length, in: stage.dropDirectory)
                }
            } + [
                Row(name: tusdRow, behind: .tusd) { _ in
                    let upload = try TusUpload(length: length, Connection(to: stage.address))
                    let part = length / parts
                    for index in 0..<parts { try upload.append(part, at: index * part) }
                    return keptFile(ofLength: length, in: stage.tusdDirectory)
                }
            ]
        let gibibytes = Double(length) / Double(1 << 30)
        return takeTurns(
            rows + kept,
            on: stage,
            section: .appends,
            title: "\(length >> 20) MiB in \(parts) requests on one connection",
            columns: largeColumns(reference: davRow),
            options: options,
            memory: length + length / 2
        ) { largeFigures($0, gibibytes) }
    }

    private static func append(
        _ length: Int64,
        _ target: String,
        _ connection: Connection,
        last: Bool
    ) throws -> (UploadResource, WireClient.Answer) {
        let upload = try UploadResource.create(target, connection)
        let part = length / parts
        for index in 0..<(parts - 1) {
            _ = try upload.append(part, at: index * part, last: false)
        }
        let response = try upload.append(part, at: (parts - 1) * part, last: last)
        return (upload, response)
    }

    private static func davPuts(
        _ length: Int64,
        _ stage: Stage,
        synced: Bool
    ) throws -> Outcome {
        let connection = try Connection(to: stage.address)
        var added = 0.0
        for index in 0..<parts {
            try connection.exchange(
                Request("PUT", "/dav/part-\(index)", length: length / parts),
                expecting: 201
            )
            if synced { added += try synchronise("\(stage.davDirectory)/part-\(index)") }
        }
        return Outcome(addedSeconds: added) {
            let total = try fileLengths(below: stage.davDirectory).reduce(0, +)
            guard total == length else {
                throw BenchFailure("dav PUT kept \(total) of \(length) bytes")
            }
            try emptyDirectory(stage.davDirectory)
        }
    }
}
