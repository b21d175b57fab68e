// What one process counts of what happens: in memory, each thing at one place, most of them where the journal
// tells it.
//
// What the metrics are called is the operator's page (Admin/MetricsPage). Invariant: the keys are of bounded
// sets: routes of the settings, methods, statuses, the codes of refusals; never an owner, a path or an identity.

package import HTTPTypes
package import Posix
package import UploadProtocol

/// The counts of one process.
///
/// Any thread.
package final class Metrics: Sendable {
    /// One kind of answered request.
    package struct RequestKey: Hashable, Sendable {
        /// The route; `-` where there is none.
        package var route: String
        /// The method.
        package var method: MethodName
        /// The final status; 0: the connection ended without one.
        package var status: Int

        /// Makes a key.
        package init(route: String, method: MethodName, status: Int) {
            self.route = route
            self.method = method
            self.status = status
        }
    }

    /// The methods that are told from each other.
    package enum MethodName: String, Sendable {
        case get = "GET"
        case head = "HEAD"
        case post = "POST"
        case put = "PUT"
        case patch = "PATCH"
        case delete = "DELETE"
        case options = "OPTIONS"
        case other

        /// The name of a method; `other` for those that have none here.
        package init(_ method: HTTPRequest.Method?) {
            self =
                switch method {
                case .get?: .get
                case .head?: .head
                case .post?: .post
                case .put?: .put
                case .patch?: .patch
                case .delete?: .delete
                case .options?: .options
                default: .other
                }
        }
    }

    /// What became of uploads.
    package enum Outcome: String, Sendable {
        /// A resource was made.
        case created
        /// The upstream has answered.
        case delivered
        /// It is not delivered and will not be.
        case failed
        /// The upstream was sent it and gave no answer.
        case held
        /// Its client removed it.
        case cancelled
        /// It was kept for as long as its route keeps one.
        case expired
    }

    /// One kind of happening of uploads.
    package struct UploadKey: Hashable, Sendable {
        /// The route; `-` where it cannot be known.
        package var route: String
        /// The protocol: `ietf`, `tus`, or `none` for ordinary uploads.
        package var dialect: String
        /// What became of it.
        package var outcome: Outcome
    }

    /// One kind of delivery attempts.
    package struct DeliveryKey: Hashable, Sendable {
        /// The route.
        package var route: String
        /// What came of it: see `Journal.attempted`.
        package var result: String
    }

    /// When this process began.
    package let start = WallTime.now
    /// Requests that are over.
    package let requests = Tallies<RequestKey>()
    /// Refusals by their code.
    package let refusals = Tallies<String>()
    /// Uploads by what became of them.
    package let uploads = Tallies<UploadKey>()
    /// Bytes of content received, by route.
    package let received = Tallies<String>()
    /// Bytes of uploads that the upstream took, by route.
    package let delivered = Tallies<String>()
    /// Content that ended early, by why.
    package let interruptions = Tallies<String>()
    /// Uploads that were resumed after that.
    package let resumptions = Tally()
    /// Uploads whose content is received now.
    package let receiving = Tally()
    /// Uploads with a resource that an attempt is under way for.
    package let delivering = Tally()
    /// Delivery attempts by what came of them.
    package let deliveries = Tallies<DeliveryKey>()
    /// How long they took, by route.
    package let deliveryTimes = Histograms<String> { Histogram(Histogram.medium) }
    /// From the creation of an upload until it is whole, by route.
    package let uploadTimes = Histograms<String> { Histogram(Histogram.long) }
    /// Interim responses sent, by status.
    package let interims = Tallies<Int>()
    /// Questions to authorizers, by their result.
    package let authorizerTimes = Histograms<String> { Histogram(Histogram.medium) }
    /// Inspections, by their result.
    package let inspectionTimes = Histograms<String> { Histogram(Histogram.medium) }
    /// The last uploads that were not delivered.
    package let failures = RecentFailures()
    /// The uploads that wait.
    package let waiting = WaitingUploads()
    /// Whether the last reload of the settings was refused: 1, else 0.
    package let refusedReload = Tally()

    /// Begins with nothing counted.
    package init() {}
}

/// One upload that was not delivered, or that the upstream refused.
package struct RecentFailure: Sendable, Equatable {
    /// When.
    package var time: WallTime
    /// The upload.
    package var id: UploadID
    /// Its route.
    package var route: String
    /// Why.
    package var reason: String
}

/// The last uploads that were not delivered.
///
/// Any thread.
package final class RecentFailures: Sendable {
    private static let most = 20
    private let list = Monitor<[RecentFailure]>([])

    /// Notes one.
    func note(_ id: UploadID, route: String, reason: String) {
        let failure = RecentFailure(time: .now, id: id, route: route, reason: reason)
        list.updateQuietly { list in
            if list.count >= Self.most { list.removeFirst() }
            list.append(failure)
        }
    }

    /// The newest first, at most 20.
    package var newest: [RecentFailure] { list.updateQuietly { $0.reversed() } }
}
