// Who may be at work and who may wait, counted.

import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct AdmissionTests {
    private let alice = ClientName(owner: "alice", address: nil)
    private let bob = ClientName(owner: "bob", address: nil)

    private func admission(
        threads: Int = 16,
        reserve: Int = 8,
        _ change: (inout Settings) -> Void = { _ in }
    ) -> Admission {
        var settings = Settings()
        change(&settings)
        return Admission(
            RequestBounds(settings, ThreadBudget(maximum: threads, reserve: reserve))
        )
    }

    private func ticket(_ answer: Admission.Answer) -> AdmissionTicket? {
        if case .admitted(let ticket) = answer { ticket } else { nil }
    }

    @Test("one client has half of the threads where nothing is set, and the others the rest")
    func ofClient() {
        let admission = admission()
        let visits = (0..<8).compactMap { _ in
            ticket(admission.admit(alice, isShort: false, at: .regular))
        }
        #expect(visits.count == 8)
        #expect(ticket(admission.admit(alice, isShort: false, at: .regular)) == nil)
        #expect(ticket(admission.admit(bob, isShort: false, at: .regular)) != nil)
        admission.leave(visits[0])
        #expect(ticket(admission.admit(alice, isShort: false, at: .regular)) != nil)
    }

    @Test("0 is no bound, and one client waits in a quarter of the threads all the same")
    func unbounded() throws {
        let admission = admission(threads: 400) {
            $0.clients.maximumConcurrent = 0
            $0.maximumWaitingThreads = 0
        }
        let clients =
            [alice, bob] + (0..<3).map { ClientName(owner: ExactText("\($0)"), address: nil) }
        for client in clients {
            for number in 0..<500 {
                let answer = admission.admit(client, isShort: false, at: .regular)
                let refusal = admission.startWaiting(try #require(ticket(answer)))
                #expect(refusal == (number < 100 ? nil : .clientWaits))
            }
        }
    }

    @Test(
        "where a client or the front is full, short requests of each client have a quarter of the reserve"
    )
    func reserve() throws {
        let admission = admission()
        for _ in 0..<8 { _ = admission.admit(alice, isShort: false, at: .regular) }
        #expect(ticket(admission.admit(bob, isShort: false, at: .reserve)) == nil)
        for client in [alice, bob] {
            let first = try #require(ticket(admission.admit(client, isShort: true, at: .reserve)))
            #expect(first.isHurried)
            #expect(admission.startWaiting(first) != nil)
            #expect(ticket(admission.admit(client, isShort: true, at: .reserve)) != nil)
            #expect(ticket(admission.admit(client, isShort: true, at: .reserve)) == nil)
            admission.leave(first)
            #expect(ticket(admission.admit(client, isShort: true, at: .reserve)) != nil)
            #expect(ticket(admission.admit(client, isShort: true, at: .none)) == nil)
        }
        // Its own bound does not keep a client from asking.
        let other = self.admission()
        for _ in 0..<8 { _ = other.admit(alice, isShort: false, at: .regular) }
        #expect(ticket(other.admit(alice, isShort: true, at: .regular))?.isHurried == true)
    }

    @Test("those that wait are fewer, of one client and of all; nothing stays counted")
    func waiting() throws {
        let admission = admission { $0.maximumWaitingThreads = 6 }
        func visits(_ client: ClientName) -> [AdmissionTicket] {
            (0..<8).compactMap { _ in ticket(admission.admit(client, isShort: false, at: .regular))
            }
        }
        let (mine, others) = (visits(alice), visits(bob))
        #expect(mine.prefix(4).allSatisfy { admission.startWaiting($0) == nil })
        #expect(admission.startWaiting(mine[4]) == .clientWaits)
        #expect(others.prefix(2).allSatisfy { admission.startWaiting($0) == nil })
        #expect(admission.startWaiting(others[2]) == .tooManyWait)
        let place = WaitingPlace(admission, for: others[2])
        #expect(!place.take())
        #expect(place.refusal == .tooManyWait)
        place.giveBack()
        for ticket in mine.prefix(4) + others.prefix(2) { admission.stopWaiting(ticket) }
        for ticket in mine + others { admission.leave(ticket) }
        #expect(admission.load == (0, 0))
    }

    @Test("the threads fit the descriptors, and some are left for short requests")
    func budget() {
        let all = ThreadBudget(Settings())
        let plenty = all.within(descriptors: 32_768, open: 250, deliveries: 32)
        #expect(plenty == ThreadBudget(maximum: 4096, reserve: 64))
        for descriptors in [256, 1024, 4096, 20_000] {
            let few = all.within(descriptors: descriptors, open: 250, deliveries: 32)
            #expect(few.maximum >= 1 && few.reserve >= 1)
            guard descriptors > 256 else { continue }
            let requests = few.maximum + few.reserve + ThreadBudget.turningAway
            #expect(requests * ThreadBudget.ofRequest + 250 < descriptors)
            #expect(few.maximum > 3 * few.reserve - 4)
        }
    }
}
