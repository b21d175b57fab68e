// The choice of slots: a power failure that destroys every block being written must leave the last durable state.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("The order of slots")
struct SlotOrderTests {
    private func slot(_ place: Int, _ directory: TemporarySpool, _ id: UploadID) throws -> Data {
        let record = try Data(contentsOf: URL(filePath: directory.record(id)))
        return record.dropFirst(Int(RecordSlots.promised[place])).prefix(RecordSlots.size)
    }

    @Test("states that are not durable leave the last durable one in place")
    func notDurable() throws {
        let directory = TemporarySpool()
        let upload = try directory.open().create(.sample(), requestRelease: {})
        let id = upload.creation.id
        try upload.append("content")
        try upload.sync()
        let durable = try slot(1, directory, id)
        #expect(directory.state(of: id)?.sequence == 3)
        try upload.setLength(7)
        try upload.beginAttempt()
        try upload.postpone(reason: "not reached", .queue(.now))
        #expect(try slot(1, directory, id) == durable)
        #expect(directory.state(of: id)?.queue == .deferred)
        try upload.sync()
        try upload.beginAttempt()
        #expect(try slot(1, directory, id) != durable)
    }
}
