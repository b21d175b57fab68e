// A program that takes uploads from a directory, which is the upstream of a route.
//
// It takes no file before its record is there, and changes none: it leaves, moves or removes them. The driver looks into
// the directory after each step. Invariant: the ledger learns of a drop before the client of the upload notes what it
// heard.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

final class Consumer {
    private struct Record: Decodable { var file, target: String }

    /// Whose manner says whether the daemon pauses after its next drop.
    let service: Service
    let directory: String
    private let taken: String
    private let plan: Plan
    private let machine: Machine
    private let ledger: Ledger
    /// The uploads by the paths at which the consumer has their content.
    private var files: [String: Int] = [:]
    /// The names of uploads, which are the same if they are dropped again.
    private var names: [Int: String] = [:]
    /// The inodes of the records that were seen, by name.
    private let seen = Monitor<[String: UInt]>([:])

    init(_ service: Service, on machine: Machine, _ ledger: Ledger, _ plan: Plan) throws {
        self.service = service
        self.machine = machine
        self.ledger = ledger
        self.plan = plan
        directory = "\(machine.root)/dropped"
        taken = "\(machine.root)/taken"
        for path in [directory, taken] { try machine.makeDirectory(path) }
        service.behave(.slow, times: 3)
        // The gateway's next call for the upload writes what became of it.
        machine.setBeforeCall { [weak service, seen, directory] subject in
            guard let service, service.pausesNext else { return }
            let isDropped = Self.records(in: directory).contains { name, inode in
                subject.contains(name.prefix(26)) && seen.updateQuietly { $0[name] } != inode
            }
            if isDropped { service.pauseIfSlow() }
        }
    }

    private static func records(in directory: String) -> [String: UInt] {
        var records: [String: UInt] = [:]
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        for name in names where name.hasSuffix(".json") && !name.hasPrefix(".") {
            records[name] = inode(of: "\(directory)/\(name)")
        }
        return records
    }

    /// nil if the file is gone.
    static func inode(of path: String) -> UInt? {
        var status = stat()
        return stat(path, &status) == 0 ? UInt(status.st_ino) : nil
    }

    /// The inodes of the files that it has.
    var inodes: Set<UInt> { Set(files.keys.compactMap(Self.inode)) }

    // MARK: Drops

    /// Notes new files, and checks those that it has.
    func look() {
        for (name, inode) in Self.records(in: directory).sorted(by: { $0.key < $1.key })
        where seen.updateQuietly({ $0.updateValue(inode, forKey: name) }) != inode {
            receive(name)
        }
        for (path, number) in files where content(path) != ledger.upload(number)?.content {
            ledger.complain(4, "upload \(number): its file has changed or is gone")
        }
    }

    private func receive(_ name: String) {
        let bytes = Data(content("\(directory)/\(name)") ?? [])
        guard let record = try? JSONDecoder().decode(Record.self, from: bytes),
            let number = record.target.split(separator: "?").last.flatMap({ Int($0) }),
            "\(record.file).json" == name
        else { return ledger.complain(4, "the record \(name) names no upload") }
        let path = "\(directory)/\(record.file)"
        guard let content = content(path) else {
            return ledger.complain(1, "upload \(number) has a record, but no file")
        }
        if names.updateValue(name, forKey: number) ?? name != name {
            ledger.complain(2, "upload \(number) is dropped again, and has another name")
        }
        files[path] = number
        for path in [path, "\(directory)/\(name)"] {
            machine.adopt(path, isDurable: plan.survivesPowerFailure)
        }
        ledger.tell("  \(service.name) gets the file of upload \(number), \(content.count) bytes")
        let reception = Reception(
            service: service.name,
            number: number,
            content: content,
            isWhole: true,
            // A second drop results in the same two files.
            key: name,
            passes: service.passes(number),
            isChecked: plan.hasAuthorizer
        )
        ledger.received(reception, meaning: .success)
    }

    private func content(_ path: String) -> [UInt8]? {
        FileManager.default.contents(atPath: path).map { Array($0) }
    }

    // MARK: What becomes of files

    /// Moves or removes a file, the record last.
    func finish(_ random: inout SplitMix) {
        let records = seen.updateQuietly { $0.keys.sorted() }
        guard !records.isEmpty else { return }
        let record = random.one(from: records)
        let path = "\(directory)/\(record.dropLast(5))"
        let place = random.once(in: 2) ? "\(taken)/\(random.next() as UInt64)" : nil
        let number = files.removeValue(forKey: path)
        let deed = place == nil ? "removes" : "moves"
        ledger.tell("\(service.name): the consumer \(deed) the file of upload \(number ?? -1)")
        if let place { files[place] = number }
        machine.change(path, to: place)
        machine.change("\(directory)/\(record)", to: nil)
        seen.updateQuietly { $0[record] = nil }
    }

    /// The machine starts again.
    ///
    /// `look` finds content that is lost. If `isKept` is false, what is left is removed.
    func survive(isKept: Bool) {
        let records = Self.records(in: directory)
        let had = seen.updateQuietly { had in
            defer { had = isKept ? records : [:] }
            return had
        }
        if isKept {
            for name in had.keys where records[name] == nil {
                ledger.complain(1, "the power failure has taken \(name)")
            }
        } else {
            removeAll()
        }
    }

    func removeAll() {
        let records = Self.records(in: directory).keys.map { "\(directory)/\($0)" }
        for path in Array(files.keys) + records { machine.change(path, to: nil) }
        files = [:]
    }

    /// All daemons have ended.
    func checkEnd() {
        let all = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        let records = Self.records(in: directory)
        for name in all where records[name] == nil && records["\(name).json"] == nil {
            ledger.complain(6, "\(name) is left in the directory")
        }
    }
}
