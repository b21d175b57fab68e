// The names of all metrics and the sources of their values; spoolgate-metrics(7) has a row for each.
//
// Invariant: labels have bounded sets of values, and never an owner, a path or an identity.

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSpool
import SpoolgateTextFormats

extension Admin {
    /// The metrics in the text format of Prometheus.
    var metricsText: String {
        var text = MetricsText(prefix: "spoolgate_")
        addProcess(to: &text)
        addRequests(to: &text)
        addUploads(to: &text)
        addQueues(to: &text)
        addDeliveries(to: &text)
        addSpool(to: &text)
        addRest(to: &text)
        return text.text
    }

    private func addProcess(to text: inout MetricsText) {
        let metrics = gateway.metrics
        text.begin("build_info", .gauge, "Version and build of the program; always 1.")
        text.add(1, [("version", version), ("build", build ?? "unknown")])
        text.begin(
            "start_time_seconds",
            .gauge,
            "Start time of the daemon, in seconds since the Unix epoch."
        )
        text.add(metrics.start.seconds)
        text.begin(
            "settings_last_reload_success",
            .gauge,
            "Whether the last reload of the settings succeeded (1) or failed (0)."
        )
        text.add(1 - metrics.refusedReload.count)
        let load = self.load()
        text.begin(
            "ready",
            .gauge,
            "Whether the daemon is ready (1) or not (0), as reported by /ready."
        )
        text.add(checks(load).allSatisfy(\.isGood) ? 1 : 0)
        text.begin("threads_busy", .gauge, "Requests being processed.")
        text.add(load.busy)
        text.begin(
            "threads_maximum",
            .gauge,
            "Maximum number of concurrent requests (threads.maximum)."
        )
        text.add(load.maximum)
    }

    private func addRequests(to text: inout MetricsText) {
        let metrics = gateway.metrics
        text.begin("requests_total", .counter, "Completed requests.")
        for (route, counts) in metrics.routes {
            for (method, status, count) in counts.responded {
                let word = status == 0 ? "none" : "\(status)"
                text.add(count, [("route", route), ("method", method.label), ("status", word)])
            }
        }
        text.begin("refusals_total", .counter, "Requests refused by the gateway, by code.")
        text.add(metrics.refusals, "reason")
        text.begin("interim_total", .counter, "Interim responses sent.")
        for (status, count) in metrics.interimCounts {
            text.add(count, [("status", "\(status)")])
        }
        text.begin(
            "front_faults_total",
            .counter,
            "Requests that reveal a fault in the web server's configuration."
        )
        let faults = gateway.faults.counts
        for fault in WebServerFault.allCases {
            text.add(faults[fault] ?? 0, [("fault", fault.rawValue)])
        }
    }

    private func addUploads(to text: inout MetricsText) {
        let metrics = gateway.metrics
        text.begin("uploads_total", .counter, "Uploads, by outcome.")
        for (route, counts) in metrics.routes {
            for (outcome, dialect, count) in counts.outcomes {
                text.add(
                    count,
                    [("route", route), ("dialect", "\(dialect)"), ("outcome", "\(outcome)")]
                )
            }
        }
        text.begin("received_bytes_total", .counter, "Bytes of content received.")
        for (route, counts) in metrics.routes {
            text.add(counts.content.received, [("route", route)])
        }
        text.begin(
            "spool_receive_bytes_total",
            .counter,
            "Bytes of content that nginx wrote to the spool directly (spool-receive)."
        )
        for (route, counts) in metrics.routes {
            text.add(counts.content.writtenByNginx, [("route", route)])
        }
        text.begin(
            "spool_receive_total",
            .counter,
            "Requests with more than 256 KiB of upload content, or of unknown length, by result."
        )
        for (route, counts) in metrics.routes {
            for (path, count) in counts.paths {
                text.add(count, [("route", route), ("result", path.label)])
            }
        }
        text.begin("uploads_receiving", .gauge, "Uploads being received.")
        text.add(metrics.receiving.count)
        text.begin("interruptions_total", .counter, "Interruptions of received content, by reason.")
        text.add(metrics.interruptions, "reason")
        text.begin("resumptions_total", .counter, "Uploads resumed after an interruption.")
        text.add(metrics.resumptions.count)
        text.begin(
            "upload_seconds",
            .histogram,
            "Time from the creation of an upload to its completion."
        )
        for (route, counts) in metrics.routes { text.add(counts.uploadTimes, [("route", route)]) }
    }

    private func addQueues(to text: inout MetricsText) {
        let queues = QueueFigures(of: gateway)
        text.begin("uploads", .gauge, "Uploads in the spool, by queue.")
        for (queue, cause, count) in queues.counts {
            text.add(count, [("queue", queue.rawValue), ("cause", cause?.rawValue ?? "")])
        }
        text.begin("queue_runs_total", .counter, "Queue runs.")
        text.add(gateway.metrics.queueRuns.count)
        text.begin(
            "queue_oldest_seconds",
            .gauge,
            "Waiting time of the oldest complete upload."
        )
        for (key, age) in queues.oldest {
            text.add(age, [("queue", key.queue.rawValue), ("route", key.route)])
        }
    }

    private func addDeliveries(to text: inout MetricsText) {
        let metrics = gateway.metrics
        text.begin("deliveries_total", .counter, "Delivery attempts, by result.")
        for (route, counts) in metrics.routes {
            for (result, count) in counts.results {
                text.add(count, [("route", route), ("result", result.label)])
            }
        }
        text.begin(
            "route_failing",
            .gauge,
            "Whether deliveries of a route are failing (1) or not (0)."
        )
        for route in routes {
            text.add(route.counts.health.failing == nil ? 0 : 1, [("route", route.name)])
        }
        text.begin("delivery_seconds", .histogram, "Duration of delivery attempts.")
        for (route, counts) in metrics.routes {
            text.add(counts.deliveryTimes, [("route", route)])
        }
        text.begin("delivered_bytes_total", .counter, "Bytes of uploads accepted by the upstream.")
        for (route, counts) in metrics.routes {
            text.add(counts.delivered.count, [("route", route)])
        }
        text.begin("authorizer_seconds", .histogram, "Response time of the authorizer.")
        text.add(metrics.authorizerTimes, "result")
        text.begin("inspect_seconds", .histogram, "Duration of inspections.")
        text.add(metrics.inspectionTimes, "result")
    }

    private func addSpool(to text: inout MetricsText) {
        let spool = gateway.deliveries.spool
        let (figures, sample) = (spool.figures, sampler.sample)
        text.begin("spool_bytes", .gauge, "Bytes of content and records in the spool.")
        text.add(figures.bytes)
        text.begin("spool_reserve_bytes", .gauge, "Bytes that must stay free (spool.reserve).")
        text.add(figures.reserve)
        if let quota = figures.quota {
            text.begin(
                "spool_quota_bytes",
                .gauge,
                "Maximum number of bytes in the spool (spool.quota)."
            )
            text.add(quota)
        }
        let full = Set(spool.refusals(with: sample.space).compactMap(\.fullness))
        text.begin("spool_full", .gauge, "Whether uploads are refused with 507, by cause.")
        for cause in SpoolFullness.allCases {
            text.add(full.contains(cause) ? 1 : 0, [("cause", cause.rawValue)])
        }
        if let space = sample.space {
            text.begin("spool_free_bytes", .gauge, "Free bytes on the file system of the spool.")
            text.add(space.freeBytes)
            if let files = space.freeFiles {
                text.begin(
                    "spool_free_files",
                    .gauge,
                    "Free inodes on the file system of the spool."
                )
                text.add(files)
            }
        }
        text.begin("spool_errors_total", .counter, "Errors of the spool.")
        text.add(gateway.metrics.spoolErrors.total)
        text.begin(
            "spool_unrecovered",
            .gauge,
            "Uploads and directories that recovery could not read or repair."
        )
        text.add(gateway.metrics.unrecovered.count)
        text.begin("sync_seconds", .histogram, "Time to make data durable.")
        text.add(Disk.syncTimes)
        if let purge = sample.lastPurge {
            text.begin(
                "purge_last_success_timestamp_seconds",
                .gauge,
                "Time of the last purge of expired uploads, in seconds since the Unix epoch."
            )
            text.add(purge.seconds)
        }
    }

    private func addRest(to text: inout MetricsText) {
        text.begin("events_pending", .gauge, "Events waiting for the webhook.")
        text.add(max(0, gateway.events.pending))
        text.begin("events_lost_total", .counter, "Events lost because they could not be written.")
        text.add(gateway.events.lost)
    }
}

extension MetricsText {
    fileprivate mutating func add(_ counters: Counters<String>, _ label: String) {
        for (key, counter) in counters.all { add(counter.count, [(label, key)]) }
    }

    fileprivate mutating func add(_ histograms: Histograms<String>, _ label: String) {
        for (key, histogram) in histograms.all { add(histogram, [(label, key)]) }
    }

    fileprivate mutating func add(_ histogram: Histogram, _ labels: Labels = []) {
        add(bounds: histogram.bounds, histogram.cumulated, sum: histogram.seconds, labels)
    }
}

/// The number of uploads in each queue, and the waiting time of the oldest.
struct QueueFigures {
    struct Place: Hashable {
        var queue: Queue
        var route: String
    }

    /// The uploads in `hold` are counted by cause.
    private(set) var counts: [(queue: Queue, cause: HoldCause?, count: Int)] = []
    private(set) var incoming = 0
    /// The waiting time of the oldest upload in each place, in seconds.
    private(set) var oldest: [Place: Int64] = [:]

    init(of gateway: Gateway) {
        let spool = gateway.deliveries.spool
        let (waiting, others) = gateway.metrics.waiting.all
        let (figures, now) = (spool.figures, spool.clock.now)
        let active = gateway.metrics.delivering.count
        var held: [HoldCause: Int] = [:]
        for upload in waiting {
            if let cause = upload.cause { held[cause, default: 0] += 1 }
            guard let since = upload.since else { continue }
            let place = Place(
                queue: upload.cause == nil ? .deferred : .hold,
                route: upload.route
            )
            oldest[place] = max(oldest[place] ?? 0, now.seconds - since.seconds)
        }
        let inHold = held.values.reduce(0, +)
        let deferred = waiting.count - inHold + others
        incoming = max(0, figures.unfinished - deferred - inHold - active)
        counts = [
            (.incoming, nil, incoming),
            (.active, nil, active), (.deferred, nil, deferred),
        ]
        for cause in HoldCause.allCases { counts.append((.hold, cause, held[cause] ?? 0)) }
        counts.append((.delivered, nil, max(0, figures.uploads - figures.unfinished)))
        counts.append((.corrupt, nil, gateway.metrics.waiting.corrupt))
    }
}
