// The due uploads of one route.
//
// Invariant: each client with ready uploads has exactly one turn.

import SpoolgateUploadProtocol

/// The due uploads of one route.
///
/// Clients take turns; each client's uploads keep their order of arrival.
struct ReadyUploads {
    private var uploads: [ClientName: ArraySlice<UploadID>] = [:]
    private var turns: ArraySlice<ClientName> = []
    private(set) var count = 0

    mutating func append(_ id: UploadID, of client: ClientName) {
        count += 1
        if uploads[client] == nil { turns.append(client) }
        uploads[client, default: []].append(id)
    }

    /// Whether a client with ready uploads may use another slot.
    func fits(in room: SlotShares.Room) -> Bool { turns.contains { room.admits($0) } }

    /// Removes and returns the first upload of the next client that may use another slot; nil if no client may.
    mutating func popFirst(fitting room: SlotShares.Room) -> (id: UploadID, client: ClientName)? {
        // Few clients lack room because each must already hold at least two slots.
        guard let turn = turns.firstIndex(where: { room.admits($0) }) else { return nil }
        let client = turns[turn]
        for index in (turns.startIndex..<turn).reversed() { turns[index + 1] = turns[index] }
        turns.removeFirst()
        guard let id = uploads[client]?.popFirst() else { return nil }
        count -= 1
        if uploads[client]?.isEmpty ?? true { uploads[client] = nil } else { turns.append(client) }
        return (id, client)
    }
}
