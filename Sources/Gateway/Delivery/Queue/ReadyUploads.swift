// The uploads of one route whose time has come, by client.
//
// Invariant: each client that has one has one turn.

import SpoolgateUploadProtocol

/// Uploads that are ready: those of one client in order, the clients in turn.
struct ReadyUploads {
    private var uploads: [ClientName: ArraySlice<UploadID>] = [:]
    private var turns: ArraySlice<ClientName> = []
    /// How many there are.
    private(set) var count = 0

    /// Adds one behind the others of its client.
    mutating func append(_ id: UploadID, of client: ClientName) {
        count += 1
        if uploads[client] == nil { turns.append(client) }
        uploads[client, default: []].append(id)
    }

    /// Whether there is one of a client for which there is room.
    func fits(in room: SlotShares.Room) -> Bool { turns.contains { room.admits($0) } }

    /// Takes the first of the client whose turn it is, of those for which there is room.
    mutating func popFirst(fitting room: SlotShares.Room) -> (id: UploadID, client: ClientName)? {
        // Few have no room, since each of them holds at least two slots.
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
