// The ledger: what each client sent and heard, what each service received and meant, and what the operator did.
//
// Only the neighbours write it. It knows nothing of states, files or code. README.md has the laws, by number.

import SpoolgatePosix

/// What a service meant by its answer, which only the service knows.
enum Meaning: Equatable, Sendable {
    case success
    /// The application's final word.
    case refusal(Int)
    /// Other credentials are needed.
    case login
    /// Somebody in front of the application sent the client elsewhere.
    case elsewhere(Int)
    /// The same request is wanted at another place.
    case follow(Int)
    case notNow(Int)
    /// The request was certainly not processed.
    case notProcessed(Int)
    /// The request may have been processed, and nobody learns it.
    case lost

    /// Whether the application may have processed the request.
    var mayBeProcessed: Bool {
        switch self {
        case .success, .refusal, .elsewhere, .notNow, .lost: true
        case .login, .follow, .notProcessed: false
        }
    }

    var status: Int? {
        switch self {
        case .refusal(let code), .elsewhere(let code), .follow(let code), .notNow(let code),
            .notProcessed(let code):
            code
        case .login: 401
        case .success, .lost: nil
        }
    }
}

/// One request that a service received, as far as it did.
struct Reception: Sendable {
    var service: String
    var number: Int
    var token: String?
    /// The values of the field that the authorizer sets; nil if there is no authorizer.
    var user: [String]?
    var content: [UInt8]
    var isWhole: Bool
    /// The value of `Idempotency-Key`.
    var key: String?
    /// How often the inspection has passed the upload; nil if there is none.
    var passes: Int?
    /// Whether the authorizer decides about each delivery, and is asked about one now.
    var isChecked = false
    var isBeforeDelivery = false
    /// Whether the service is an authorizer or another one that receives no content.
    var isQuestion = false
}

final class Ledger: Sendable {
    struct Upload: Sendable {
        var number: Int
        var client: String
        var owner: String
        /// The service of its route.
        var upstream: String
        var content: [UInt8]
        var isRepeatable: Bool
        /// A small upload without a resource, sent by a client without the protocol.
        var isOrdinary: Bool
        /// Its client said a digest that is not that of its content.
        var hasWrongDigest: Bool
        var tokens: Set<String> = []
        /// The tokens of its requests from the first one on that was to send the end.
        var newTokens: Set<String> = []
        /// The highest position of content that the client has sent.
        var sent = 0
        /// The highest offset that the client was told.
        var told = 0
        var isAccepted = false
        var isSuccessHeard = false
        /// Its client heard success after it was told that something is kept, and neither a full disk nor a later power
        /// failure may hide it.
        var isSuccessKept = false
        var refusalHeard: Int?
        /// The client heard that the outcome is unknown, or that the delivery failed.
        var isUnknownHeard = false
        var isCancellationSent = false
        /// Its client has sent a cancellation, and has not heard what became of it.
        var mayBeCancelled = false
        var isCancelled = false
        var isRemoved = false
        /// An operator holds it.
        var isHeld = false
        var mayBeProcessed = false
        /// How often upstreams received it.
        var receptions = 0
        var successes = 0
        var meanings: [Meaning] = []
        /// By service and token.
        var refusedTokens: Set<String> = []
        /// The time since its client sent the newest content that it was told is kept, in seconds.
        var idle: Int64 = 0
        /// The time since its client last sent content, in seconds.
        var sinceContent: Int64 = 0
        /// When it was created, by the ledger's clock.
        var begun: Int64 = 0
        /// Until when the upstream wants nothing.
        var notBefore: Int64 = 0
        /// The authorizer has allowed the next delivery.
        var isCleared = false
        /// How often the inspection had passed it before its next delivery.
        var passes = 0
        /// The key of the first request that an upstream received.
        var key: String?
        /// No request came for longer than partial uploads are kept.
        var mayHaveExpired = false
        /// A crash, or an error of the disk, could change what the gateway knows.
        var hasTrouble = false

        /// Whether the client was told that something is kept.
        var hasPromise: Bool { told > 0 || isAccepted }

        var isExcused: Bool {
            if isCancelled || mayBeCancelled || isRemoved || mayHaveExpired || hasWrongDigest {
                return true
            }
            guard refusalHeard != nil || isUnknownHeard else { return false }
            return meanings.contains { meaning in
                switch meaning {
                case .refusal, .follow: true
                case .success, .login, .elsewhere, .notNow, .notProcessed, .lost: false
                }
            }
        }
    }

    private struct State {
        /// The seconds that have passed.
        var now: Int64 = 0
        var inspectionRefuses = false
        var lifetime = Int64.max
        var isDiskFull = false
        var honoursKeys = false
        var uploads: [Int: Upload] = [:]
        var story: [String] = []
        var complaints: [String] = []
    }

    private let state = Monitor(State())

    // MARK: The story

    func tell(_ line: String) { state.update { $0.story.append(line) } }

    var story: [String] { state.updateQuietly { $0.story } }

    /// The broken laws, the first one first.
    var complaints: [String] { state.updateQuietly { $0.complaints } }

    var hasComplaints: Bool { !complaints.isEmpty }

    func complain(_ law: Int, _ text: String) {
        state.update { Self.complain(&$0, law, text) }
    }

    private static func complain(_ state: inout State, _ law: Int, _ text: String) {
        state.complaints.append("law \(law): \(text)")
        state.story.append("!!! law \(law): \(text)")
    }

    // MARK: Clients

    func begin(_ upload: Upload) {
        state.update {
            $0.uploads[upload.number] = upload
            $0.uploads[upload.number]?.begun = $0.now
        }
    }

    func upload(_ number: Int) -> Upload? { state.updateQuietly { $0.uploads[number] } }

    var uploads: [Upload] {
        state.updateQuietly { $0.uploads.values.sorted { $0.number < $1.number } }
    }

    func change(_ number: Int, _ body: (inout Upload) -> Void) {
        state.update { state in
            guard var upload = state.uploads[number] else { return }
            body(&upload)
            state.uploads[number] = upload
        }
    }

    /// A client sends a request, with this part of the content.
    func sends(_ number: Int, _ part: Range<Int>, isEnd: Bool = false, _ token: String) {
        change(number) {
            if !part.isEmpty { $0.sinceContent = 0 }
            $0.sent = max($0.sent, part.upperBound)
            $0.tokens.insert(token)
            if isEnd || !$0.newTokens.isEmpty { $0.newTokens.insert(token) }
            $0.notBefore = 0
        }
    }

    /// A client was told that the bytes up to `offset` are kept.
    ///
    /// `before` is what it had been told when it sent the request. If `isProgress`, this request has sent some of them,
    /// perhaps long ago: a client that pauses notes at the end what it was told.
    func told(_ number: Int, _ offset: Int, before: Int, isProgress: Bool) {
        state.update { state in
            guard var upload = state.uploads[number] else { return }
            if offset < before {
                Self.complain(&state, 3, "upload \(number): offset \(offset) after \(before)")
            }
            if offset > upload.sent {
                Self.complain(
                    &state,
                    3,
                    "upload \(number): offset \(offset), but only \(upload.sent) bytes were sent"
                )
            }
            if isProgress, offset > upload.told {
                upload.idle = min(upload.idle, upload.sinceContent)
            }
            upload.told = max(upload.told, offset)
            state.uploads[number] = upload
        }
    }

    func heardAccepted(_ number: Int) {
        change(number) {
            $0.isAccepted = true
            $0.told = $0.content.count
        }
    }

    /// `wasKept` says whether the client had been told that content is kept.
    func heardSuccess(_ number: Int, wasKept: Bool) {
        state.update { state in
            guard var upload = state.uploads[number] else { return }
            upload.isSuccessHeard = true
            // A full disk may not hold the record of it.
            upload.isSuccessKept = wasKept && !state.isDiskFull
            if upload.successes == 0 {
                Self.complain(
                    &state,
                    3,
                    "upload \(number): the client heard success, but no upstream answered success"
                )
            }
            state.uploads[number] = upload
        }
    }

    /// A client heard an error that ends its upload.
    ///
    /// An upload that was sent once, like any other request, has no resource.
    func heardError(_ number: Int, _ status: Int, hasResource: Bool) {
        state.update { state in
            guard var upload = state.uploads[number] else { return }
            if upload.hasWrongDigest, status == 400 { upload.meanings.append(.refusal(400)) }
            // A retrieval says 410 of a refused upload.
            if state.inspectionRefuses, [410, 422].contains(status) {
                upload.meanings.append(.refusal(422))
            }
            // The gateway's own words for an unknown outcome; 424 stands for any status.
            let isOwn = [410, 424, 502, 504].contains(status)
            let isGiven = upload.meanings.contains { meaning in
                switch meaning {
                case .refusal(let code), .follow(let code), .elsewhere(let code): code == status
                case .notNow(let code):
                    code == status && (!upload.isRepeatable || !hasResource)
                case .notProcessed(let code): code == status && !hasResource
                // Without a resource, the client hears the upstream's own redirect.
                case .login:
                    status == 401 || status == 302 && !hasResource && upload.receptions > 0
                // The application's own redirect.
                case .success: status == 303
                case .lost: false
                }
            }
            if isGiven || !isOwn {
                upload.refusalHeard = status
            } else {
                upload.isUnknownHeard = true
            }
            if !isGiven, !isOwn {
                Self.complain(
                    &state,
                    3,
                    "upload \(number): the client heard a final \(status), which no neighbour gave"
                )
            }
            // Nobody may be blamed for a request that he never got.
            if isOwn, upload.meanings.isEmpty, !upload.hasTrouble, !upload.hasWrongDigest,
                !state.inspectionRefuses
            {
                Self.complain(
                    &state,
                    5,
                    "upload \(number): the client heard a final \(status), but no service got a request for it"
                )
            }
            state.uploads[number] = upload
        }
    }

    /// A client without the protocol, which sent everything and waited, heard not even a status.
    func heardNothing(_ number: Int) {
        if upload(number)?.hasTrouble == false {
            complain(3, "upload \(number): its client waited, and heard nothing")
        }
    }

    /// The client heard that its upload does not exist.
    func heardGone(_ number: Int) {
        state.update { state in
            guard let upload = state.uploads[number] else { return }
            if upload.hasPromise, !upload.isExcused, upload.successes == 0 {
                Self.complain(&state, 1, "upload \(number) is gone after offset \(upload.told)")
            }
        }
    }

    // MARK: Services

    /// A service received a request, and means this by its answer, which follows.
    func received(_ reception: Reception, meaning: Meaning) {
        state.update { state in
            guard var upload = state.uploads[reception.number] else { return }
            let number = reception.number
            func complain(_ law: Int, _ text: String) {
                Self.complain(&state, law, "upload \(number): \(reception.service) \(text)")
            }
            if let token = reception.token {
                if !upload.tokens.contains(token) {
                    complain(4, "got the credentials \(token), which its client never sent")
                }
                let key = "\(reception.service) \(token)"
                if upload.refusedTokens.contains(key) {
                    complain(4, "got the credentials \(token) again, which it had refused")
                }
                // What a full disk cannot store is not remembered.
                if meaning == .login, !state.isDiskFull { upload.refusedTokens.insert(key) }
                if !upload.newTokens.isEmpty, !upload.newTokens.contains(token) {
                    complain(4, "got the credentials \(token), but its client has sent newer ones")
                }
            }
            if reception.isQuestion {
                if reception.isBeforeDelivery { upload.isCleared = meaning == .success }
            } else {
                if reception.isChecked, !upload.isCleared, upload.hasPromise {
                    complain(4, "got it, although the authorizer did not allow this delivery")
                }
                // One attempt follows a redirect, and repeats a request on a new connection.
                let isOver = ![.follow(307), .notProcessed(421), .lost].contains(meaning)
                if let passes = reception.passes {
                    if passes <= upload.passes {
                        complain(4, "got it, although the inspection did not pass this delivery")
                    }
                    if isOver { upload.passes = passes }
                }
                if isOver { upload.isCleared = false }
                if upload.isAccepted, state.now < upload.notBefore {
                    complain(5, "got it before the time that it had named")
                }
                let pause = meaning == .notProcessed(429) ? Service.pause : 0
                upload.notBefore = upload.isAccepted ? state.now + pause : 0
            }
            // A second 421 is final.
            let isFinal = meaning == .notProcessed(421) && upload.meanings.contains(meaning)
            upload.meanings.append(isFinal ? .refusal(421) : meaning)
            if !reception.isQuestion {
                let isSame = upload.key != nil && upload.key == reception.key
                let mayRepeat = upload.isRepeatable || state.honoursKeys && isSame
                note(reception, meaning, &upload, mayRepeat, complain)
            }
            state.uploads[number] = upload
        }
    }

    private func note(
        _ reception: Reception,
        _ meaning: Meaning,
        _ upload: inout Upload,
        _ mayRepeat: Bool,
        _ complain: (Int, String) -> Void
    ) {
        upload.receptions += 1
        upload.key = upload.key ?? reception.key
        if let user = reception.user, user != [upload.owner] {
            complain(4, "got \(user) as the user, who is \(upload.owner)")
        }
        if reception.service != upload.upstream {
            complain(4, "got it, which is \(upload.upstream)'s")
        }
        let isPrefix = upload.content.starts(with: reception.content)
        if !isPrefix || reception.isWhole && reception.content.count != upload.content.count {
            complain(
                4,
                "got \(reception.content.count) bytes that are not the content of \(upload.content.count)"
            )
        }
        if upload.isCancelled {
            complain(3, "got it after its client was told that it is cancelled")
        }
        if upload.hasWrongDigest { complain(4, "got it, although its digest is wrong") }
        if upload.isRemoved { complain(3, "got it after an operator purged it") }
        if upload.isHeld { complain(2, "got it while an operator held it") }
        if upload.mayBeProcessed, !mayRepeat {
            complain(2, "got it again, which may have been processed")
        }
        if upload.refusalHeard != nil, !mayRepeat || meaning == .success {
            complain(3, "got it after its client heard a final refusal")
        }
        if meaning.mayBeProcessed { upload.mayBeProcessed = true }
        if meaning == .success { upload.successes += 1 }
    }

    // MARK: The operator and the machine

    /// An operator wants the upload to be sent, whatever happened.
    func requeued(_ number: Int) {
        change(number) {
            $0.mayBeProcessed = false
            $0.isHeld = false
            $0.refusalHeard = nil
            $0.refusedTokens = []
            // The record keeps none that were refused, and none of requests without an attempt.
            $0.newTokens = []
            $0.notBefore = 0
        }
    }

    /// Whether the application processes no second request with the same key.
    func honoursKeys(_ isHonoured: Bool) { state.update { $0.honoursKeys = isHonoured } }

    /// Something happened that may change the outcome of every upload that has not ended.
    func hasTrouble() {
        state.update { state in
            for number in state.uploads.keys { state.uploads[number]?.hasTrouble = true }
        }
    }

    /// How long a partial upload is kept without a request, in seconds.
    func setLifetime(_ seconds: Int64) { state.update { $0.lifetime = seconds } }

    func pass(_ seconds: Int64) {
        state.update { state in
            state.now += seconds
            for (number, upload) in state.uploads where !upload.isAccepted {
                state.uploads[number]?.idle += seconds
                state.uploads[number]?.sinceContent += seconds
                if upload.idle + seconds > state.lifetime {
                    state.uploads[number]?.mayHaveExpired = true
                }
            }
        }
    }

    /// The clock was set.
    func setClock(by seconds: Int64) { state.update { $0.now += max(0, seconds) } }

    /// Accepted uploads that may be repeated, and that only a neighbour's failure has delayed, need no operator.
    var delayed: [Upload] {
        state.updateQuietly { state in
            state.uploads.values.filter { upload in
                upload.isAccepted && upload.isRepeatable && !upload.isHeld && !upload.isExcused
                    && upload.successes == 0 && !state.inspectionRefuses
                    && state.now - upload.begun < state.lifetime
                    && upload.meanings.allSatisfy { meaning in
                        switch meaning {
                        case .notNow, .lost, .notProcessed: true
                        case .success, .refusal, .login, .elsewhere, .follow: false
                        }
                    }
            }.sorted { $0.number < $1.number }
        }
    }

    func setDiskFull(_ isFull: Bool) {
        state.update { state in
            state.isDiskFull = isFull
            // What a full disk cannot store is not remembered.
            for number in state.uploads.keys { state.uploads[number]?.notBefore = 0 }
        }
    }

    func inspectionRefuses() { state.update { $0.inspectionRefuses = true } }

    /// Credentials may be sent again, and newer ones be lost, if the process that knew it crashed.
    func crashed() {
        state.update { state in
            for number in state.uploads.keys {
                state.uploads[number]?.refusedTokens = []
                state.uploads[number]?.newTokens = []
                state.uploads[number]?.notBefore = 0
            }
        }
    }

    /// What nobody was told that it is kept may be as it was before: its cancellation and its refusal, too.
    ///
    /// If `isKept` is false, this applies to all uploads.
    func lostPower(isKept: Bool) {
        state.update { state in
            for (number, upload) in state.uploads where !isKept || !upload.hasPromise {
                state.uploads[number]?.isCancelled = false
                state.uploads[number]?.refusalHeard = nil
                guard !isKept else { continue }
                state.uploads[number]?.told = 0
                state.uploads[number]?.isSuccessKept = false
                state.uploads[number]?.mayBeProcessed = false
                state.uploads[number]?.isHeld = false
                state.uploads[number]?.isRemoved = false
            }
        }
    }

    // MARK: The end

    /// All neighbours are well, the operator has requeued everything, and time has passed.
    func checkEnd() {
        state.update { state in
            for upload in state.uploads.values.sorted(by: { $0.number < $1.number })
            where upload.hasPromise && upload.successes == 0 && !upload.isExcused {
                let kept = upload.isAccepted ? "was accepted" : "was kept up to \(upload.told)"
                Self.complain(
                    &state,
                    1,
                    "upload \(upload.number) \(kept), and was never delivered"
                )
            }
        }
    }
}
