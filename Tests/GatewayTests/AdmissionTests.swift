// The number of requests that may run or wait.

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

    private func ticket(_ response: Admission.Decision) -> AdmissionTicket? {
        if case .admitted(let ticket) = response { ticket } else { nil }
    }

    @Test("without a setting one client gets half of the threads, and the others the rest")
    func ofClient() {
        let admission = admission()
        let visits = (0..<8).compactMap { _ in
            ticket(admission.admit(alice, isShort: false))
        }
        #expect(visits.count == 8)
        #expect(ticket(admission.admit(alice, isShort: false)) == nil)
        #expect(ticket(admission.admit(bob, isShort: false)) != nil)
        admission.leave(visits[0])
        #expect(ticket(admission.admit(alice, isShort: false)) != nil)
    }

    @Test("0 means unlimited, and one client still waits in at most a quarter of the threads")
    func unbounded() throws {
        let admission = admission(threads: 400) { $0.clients.maximumConcurrent = 0 }
        for number in 0...200 {
            let visit = try #require(ticket(admission.admit(alice, isShort: false)))
            #expect(admission.startWaiting(visit) == (number < 100 ? nil : .clientWaits))
        }
    }

    @Test(
        "if a client or the gateway is full, each client's short requests get a quarter of the reserve"
    )
    func reserve() throws {
        let admission = admission()
        for client in [alice, bob] {
            for _ in 0..<8 { #expect(ticket(admission.admit(client, isShort: false)) != nil) }
        }
        let carol = ClientName(owner: "carol", address: nil)
        #expect(ticket(admission.admit(carol, isShort: false)) == nil)
        var hurried: [AdmissionTicket] = []
        for client in [alice, bob, carol] {
            let first = try #require(ticket(admission.admit(client, isShort: true)))
            #expect(first.isHurried)
            #expect(admission.startWaiting(first) != nil)
            hurried.append(try #require(ticket(admission.admit(client, isShort: true))))
            #expect(ticket(admission.admit(client, isShort: true)) == nil)
            admission.leave(first)
            hurried.append(try #require(ticket(admission.admit(client, isShort: true))))
        }
        for name in ["dave", "erin"] {
            let client = ClientName(owner: ExactText(name), address: nil)
            let isAdmitted = ticket(admission.admit(client, isShort: true)) != nil
            #expect(isAdmitted == (name == "dave"))
            guard isAdmitted else { continue }
            #expect(ticket(admission.admit(client, isShort: true)) != nil)
        }
        // A client at its limit may still send short requests.
        let other = self.admission()
        for _ in 0..<8 { _ = other.admit(alice, isShort: false) }
        #expect(ticket(other.admit(alice, isShort: true))?.isHurried == true)
    }

    @Test("the last thread serves only short requests, with a short deadline")
    func last() {
        let admission = admission()
        #expect(ticket(admission.admit(alice, isShort: false, isLast: true)) == nil)
        #expect(ticket(admission.admit(alice, isShort: true, isLast: true))?.isHurried == true)
    }

    @Test("if a request was asked to release, few wait for it, and the others are rejected at once")
    func atDoor() throws {
        let admission = admission(threads: 2)
        let first = try #require(ticket(admission.admit(alice, isShort: false)))
        let second = try #require(ticket(admission.admit(bob, isShort: false)))
        let carol = ClientName(owner: "carol", address: nil)
        let told = Monitor<[Bool]>([])
        let maximum = ThreadBudget.turningAway / 2
        for _ in 0..<maximum + 3 {
            try Thread.start(name: "comer") {
                let response = admission.admit(carol, isShort: false, patience: .seconds(300))
                let isAdmitted = if case .admitted = response { true } else { false }
                told.update { $0.append(isAdmitted) }
            }
        }
        func wait(for count: Int) -> [Bool]? {
            told.wait(until: .after(.seconds(60))) { $0.count == count ? $0 : nil }
        }
        #expect(wait(for: 3) == [false, false, false])
        admission.leave(first)
        // The thread is for a waiting request, even before it wakes up.
        let dave = ClientName(owner: "dave", address: nil)
        #expect(ticket(admission.admit(dave, isShort: false)) == nil)
        #expect(wait(for: 4)?.last == true)
        // A waiting request still counts towards its client's limit.
        admission.leave(second)
        #expect(wait(for: 3 + maximum)?.dropFirst(4) == [false, false, false])
        let late = admission.admit(alice, isShort: false, patience: .milliseconds(1))
        #expect(ticket(late) != nil)
        #expect(ticket(admission.admit(bob, isShort: false, patience: .milliseconds(1))) == nil)
    }

    @Test("waiting requests are limited, per client and in total; nothing stays counted")
    func waiting() throws {
        let admission = admission(threads: 20)
        func visits(_ client: ClientName, _ count: Int) -> [AdmissionTicket] {
            (0..<count).compactMap { _ in ticket(admission.admit(client, isShort: false)) }
        }
        let carol = ClientName(owner: "carol", address: nil)
        let (mine, others) = (visits(alice, 6), visits(bob, 5) + visits(carol, 1))
        #expect(mine.prefix(5).allSatisfy { admission.startWaiting($0) == nil })
        #expect(admission.startWaiting(mine[5]) == .clientWaits)
        #expect(others.prefix(5).allSatisfy { admission.startWaiting($0) == nil })
        #expect(admission.startWaiting(others[5]) == .tooManyWait)
        let place = WaitingPlace(admission, for: others[5])
        #expect(!place.take())
        #expect(place.refusal == .tooManyWait)
        place.giveBack()
        for ticket in mine.prefix(5) + others.prefix(5) { admission.stopWaiting(ticket) }
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
